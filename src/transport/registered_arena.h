// Blocks out of one registered region: one registration, many tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/memory_region.h"
#include "transport/offset_allocator.h"

namespace tesser::transport {

// Keeps its region. Thread-safe; calls do not block but for a short lock.
class RegisteredArena {
 public:
  explicit RegisteredArena(std::shared_ptr<MemoryRegion> region);

  // Offset in the region. kOutOfMemory says how much is free and in what pieces.
  Outcome<std::uint64_t> allocate(std::size_t bytes, std::size_t alignment = 64);
  void free(std::uint64_t offset);

  const std::shared_ptr<MemoryRegion>& region() const { return region_; }
  std::byte* at(std::uint64_t offset) const { return region_->data() + offset; }
  ArenaFigures figures() const;

 private:
  std::shared_ptr<MemoryRegion> region_;
  mutable std::mutex mutex_;
  OffsetAllocator offsets_;
};

}  // namespace tesser::transport
