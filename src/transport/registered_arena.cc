#include "transport/registered_arena.h"

#include <utility>

#include <fmt/format.h>

namespace tesser::transport {
namespace {

constexpr std::uint64_t kGranularity = 64;  // a cache line, so that two tensors never share one

}  // namespace

RegisteredArena::RegisteredArena(std::shared_ptr<MemoryRegion> region)
    : region_(std::move(region)), offsets_(0, region_->bytes(), kGranularity) {}

Outcome<std::uint64_t> RegisteredArena::allocate(std::size_t bytes, std::size_t alignment) {
  const std::lock_guard lock(mutex_);
  if (const auto offset = offsets_.allocate(bytes, alignment)) {
    return *offset;
  }
  const ArenaFigures figures = offsets_.figures();
  return failure(
      FailureKind::kOutOfMemory, "",
      fmt::format("region '{}' has no {} bytes together: {} of {} are free, the largest piece has {}; "
                  "allocate a larger region",
                  region_->name(), bytes, figures.capacity - figures.used, figures.capacity, figures.largest_free));
}

void RegisteredArena::free(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  offsets_.free(offset);
}

ArenaFigures RegisteredArena::figures() const {
  const std::lock_guard lock(mutex_);
  return offsets_.figures();
}

}  // namespace tesser::transport
