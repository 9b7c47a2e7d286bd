// Memory that peers may reach: allocated and registered once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "transport/failure.h"

namespace tesser::transport {

// Where memory lies. Only host memory can be allocated today (docs/transport.md).
enum class MemoryKind : std::uint32_t { kHost = 0, kCuda = 1, kRocm = 2 };

enum class HugePages : std::uint8_t {
  kNone,
  kTransparent,  // asks the kernel, which may not follow
  kReserved,     // from the pool of vm.nr_hugepages; refused when it is too small
  kIfAvailable,  // reserved ones where the pool has enough, else transparent ones
};

struct RegionOptions {
  std::string name = "memory";  // in messages
  MemoryKind kind = MemoryKind::kHost;
  HugePages huge_pages = HugePages::kNone;
};

// Names a region of some device; 32 bytes that may be sent anywhere and kept.
struct RegionHandle {
  std::uint64_t device = 0;  // nonce of its device
  std::uint32_t region = 0;
  MemoryKind kind = MemoryKind::kHost;
  std::uint64_t bytes = 0;

  std::string serialise() const;
  // kProtocol when the bytes are no handle, kVersionMismatch when they are one of another version.
  static Outcome<RegionHandle> parse(std::string_view bytes);
};

// Memory of this process, zeros at first. Unmapped when the last owner (holders of the pointer, the device,
// same-process peers) lets go. What threads do with the bytes is their own affair.
class MemoryRegion {
 public:
  // By Device::allocate only. Blocks for a system call.
  static Outcome<MemoryRegion> map(std::uint64_t device, std::uint32_t id, std::size_t bytes,
                                   const RegionOptions& options);
  // Maps the memory behind a descriptor that a peer sent; the descriptor stays the caller's.
  static Outcome<MemoryRegion> map_descriptor(int descriptor, const RegionHandle& handle, const std::string& peer);

  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) = delete;
  MemoryRegion(const MemoryRegion&) = delete;
  ~MemoryRegion();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return static_cast<std::size_t>(handle_.bytes); }
  std::span<std::byte> span() const { return {data_, bytes()}; }
  const RegionHandle& handle() const { return handle_; }
  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }     // of the memfd; -1 for a peer's memory
  bool is_reserved() const { return is_reserved_; }  // of huge pages from the pool; of memory allocated here

 private:
  MemoryRegion(RegionHandle handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  bool map_file(bool reserved);  // false with errno

  RegionHandle handle_;
  std::string name_;
  std::byte* data_ = nullptr;
  std::size_t mapped_ = 0;
  int descriptor_ = -1;
  bool is_reserved_ = false;
};

}  // namespace tesser::transport
