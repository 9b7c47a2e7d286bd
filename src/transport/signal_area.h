// The signal area of a device: where peers say that something has happened (docs/transport.md, signals). Internal to
// this folder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "transport/failure.h"
#include "transport/memory_region.h"
#include "transport/offset_allocator.h"

namespace tesser::transport {

// Lies at the begin of every signal area and is shared by processes: what wakes the device's sleepers.
struct Doorbell {
  alignas(64) std::uint32_t word = 0;
  alignas(64) std::uint32_t sleepers = 0;
};

// Wakes the sleepers behind a doorbell, if there are any. After the signal was stored (seq_cst).
void ring(Doorbell& doorbell);

// A peer's or our own signal word. Both are sequentially consistent: the argument for wake-ups needs it.
inline void store_signal(std::byte* area, std::uint32_t offset, std::uint64_t value) {
  auto& word = *reinterpret_cast<std::uint64_t*>(area + offset);
  std::atomic_ref<std::uint64_t>(word).exchange(value, std::memory_order_seq_cst);
}
inline std::uint64_t load_signal(std::byte* area, std::uint32_t offset) {
  auto& word = *reinterpret_cast<std::uint64_t*>(area + offset);
  return std::atomic_ref<std::uint64_t>(word).load(std::memory_order_seq_cst);
}

// Thread-safe.
class SignalArea {
 public:
  static constexpr std::size_t kLeastBytes = 4096;
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  static constexpr std::uint32_t kWordBytes = 64;
  static constexpr std::uint32_t kBlockBytes = 128;  // a metadata block

  static bool is_good_size(std::uint64_t bytes) {
    return bytes >= kLeastBytes && bytes <= kMostBytes && bytes % kWordBytes == 0;
  }

  explicit SignalArea(std::shared_ptr<MemoryRegion> region);

  const std::shared_ptr<MemoryRegion>& region() const { return region_; }
  std::byte* data() const { return region_->data(); }
  Doorbell& doorbell() const { return *reinterpret_cast<Doorbell*>(region_->data()); }
  void ring() const { transport::ring(doorbell()); }

  // A word (kWordBytes), or a ring of 8-byte words, zeroed. kOutOfMemory when the area is full.
  Outcome<std::uint32_t> allocate(std::uint32_t bytes);
  // A block (kBlockBytes), zeroed, which is the only thing here that peers may write payload to.
  Outcome<std::uint32_t> allocate_block();
  void free(std::uint32_t offset);
  // Whether these bytes lie in one block that is allocated.
  bool is_block(std::uint64_t offset, std::uint64_t bytes);

  // Signals that come as messages are only stored for words that expect them: the value's upper half must be the tag
  // set here.
  void expect(std::uint32_t offset, std::uint32_t tag);
  // The same for all words of the ring of `bytes` at `offset`.
  void expect_ring(std::uint32_t offset, std::uint32_t bytes, std::uint32_t tag);
  bool expects(std::uint32_t offset, std::uint64_t value);
  // Stores a signal that came as a message, after its payload, and rings. Nothing happens when nothing expects it.
  void deliver(std::uint32_t offset, std::uint64_t value);

 private:
  struct Ring {
    std::uint32_t bytes = 0;
    std::uint32_t tag = 0;
  };
  bool expects_locked(std::uint32_t offset, std::uint64_t value) const;

  std::shared_ptr<MemoryRegion> region_;
  std::mutex mutex_;
  OffsetAllocator offsets_;
  std::unordered_map<std::uint32_t, std::uint32_t> tags_;  // of words, by offset
  std::map<std::uint32_t, Ring> rings_;                    // by offset
  std::set<std::uint32_t> blocks_;
};

}  // namespace tesser::transport
