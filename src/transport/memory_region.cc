#include "transport/memory_region.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transport/wire.h"

namespace tesser::transport {
namespace {

constexpr std::uint32_t kMagic = 0x47525354;  // "TSRG"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

tl::unexpected<Failure> no_memory(const RegionOptions& options, std::size_t bytes, int error) {
  std::string advice = "free memory or ask for less";
  if (options.huge_pages == HugePages::kReserved) {
    advice = fmt::format("reserve pages (sysctl vm.nr_hugepages={}) or allocate without reserved huge pages",
                         round_up(bytes, kHugePage) / kHugePage);
  }
  return failure(FailureKind::kOutOfMemory, "",
                 fmt::format("cannot allocate {} bytes for region '{}': {}; {}", bytes, options.name,
                             std::strerror(error), advice));
}

}  // namespace

std::string RegionHandle::serialise() const {
  return WireWriter().put(kMagic).put(kVersion).put(device).put(region).put(kind).put(bytes).take();
}

Outcome<RegionHandle> RegionHandle::parse(std::string_view bytes) {
  WireReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint32_t>();
  if (!reader.ok() || magic != kMagic) {
    return failure(FailureKind::kProtocol, "", "these bytes are no handle of a memory region");
  }
  if (version != kVersion) {
    return failure(FailureKind::kVersionMismatch, "",
                   fmt::format("a region's handle has version {}, this tesser reads {}", version, kVersion));
  }
  RegionHandle handle;
  handle.device = reader.get<std::uint64_t>();
  handle.region = reader.get<std::uint32_t>();
  handle.kind = reader.get<MemoryKind>();
  handle.bytes = reader.get<std::uint64_t>();
  if (!reader.at_end()) {
    return failure(FailureKind::kProtocol, "", "a region's handle is cut short or too long");
  }
  return handle;
}

Outcome<MemoryRegion> MemoryRegion::map(std::uint64_t device, std::uint32_t id, std::size_t bytes,
                                        const RegionOptions& options) {
  if (options.kind != MemoryKind::kHost) {
    return failure(FailureKind::kUnavailable, "",
                   fmt::format("region '{}': only host memory can be allocated in this version", options.name));
  }
  if (bytes == 0 || bytes >= (std::size_t{1} << 46)) {
    return failure(FailureKind::kInvalidArgument, "",
                   fmt::format("region '{}': {} bytes; a region has 1 to 2^46 - 1", options.name, bytes));
  }
  MemoryRegion region({device, id, options.kind, bytes}, options.name);
  const bool wants_reserved = options.huge_pages == HugePages::kReserved ||
                              (options.huge_pages == HugePages::kIfAvailable && bytes >= kHugePage);
  bool is_mapped = wants_reserved && region.map_file(true);
  if (!is_mapped && options.huge_pages != HugePages::kReserved) {
    is_mapped = region.map_file(false);
    if (is_mapped && options.huge_pages != HugePages::kNone) {
      ::madvise(region.data_, region.mapped_, MADV_HUGEPAGE);
    }
  }
  if (!is_mapped) {
    return no_memory(options, bytes, errno);
  }
  return region;
}

bool MemoryRegion::map_file(bool reserved) {
  const std::size_t size = round_up(bytes(), reserved ? kHugePage : std::size_t{4096});
  const int file = ::memfd_create("tesser", MFD_CLOEXEC | MFD_ALLOW_SEALING | (reserved ? MFD_HUGETLB : 0U));
  if (file < 0) {
    return false;
  }
  void* data = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(size)) == 0) {
    // A peer that could shorten the file would have this process killed at its next access.
    ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    // Of reserved pages this takes all out of the pool, or fails: no later access can.
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (data == MAP_FAILED) {
    const int error = errno;
    ::close(file);
    errno = error;
    return false;
  }
  descriptor_ = file;
  data_ = static_cast<std::byte*>(data);
  mapped_ = size;
  is_reserved_ = reserved;
  return true;
}

Outcome<MemoryRegion> MemoryRegion::map_descriptor(int descriptor, const RegionHandle& handle,
                                                   const std::string& peer) {
  struct stat status {};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (::fstat(descriptor, &status) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 || handle.bytes == 0 ||
      static_cast<std::uint64_t>(status.st_size) < handle.bytes) {
    return failure(FailureKind::kProtocol, peer,
                   fmt::format("{} offers region {} of {} bytes with a file that does not hold it", peer, handle.region,
                               handle.bytes));
  }
  MemoryRegion region(handle, fmt::format("region {} of {}", handle.region, peer));
  region.mapped_ = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, region.mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    return failure(FailureKind::kOutOfMemory, peer,
                   fmt::format("cannot map region {} of {} ({} bytes): {}", handle.region, peer, handle.bytes,
                               std::strerror(errno)));
  }
  region.data_ = static_cast<std::byte*>(data);
  // Where its owner asked for huge pages and has got them, this process maps them as such.
  ::madvise(data, region.mapped_, MADV_HUGEPAGE);
  return region;
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : handle_(other.handle_),
      name_(std::move(other.name_)),
      data_(std::exchange(other.data_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      is_reserved_(other.is_reserved_) {}

MemoryRegion::~MemoryRegion() {
  if (data_ != nullptr) {
    ::munmap(data_, mapped_);
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

}  // namespace tesser::transport
