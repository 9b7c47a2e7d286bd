// Hands out offsets of a stretch of memory that it never touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace tesser::transport {

struct ArenaFigures {
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;          // bytes in blocks handed out, with their rounding
  std::uint64_t peak = 0;          // most used at one time
  std::uint64_t largest_free = 0;  // largest block that could be handed out now
  std::size_t blocks = 0;
  std::size_t free_blocks = 0;

  // 0: all free memory is in one piece; towards 1: it is in many small ones.
  double fragmentation() const {
    const std::uint64_t free = capacity - used;
    return free == 0 ? 0 : 1 - static_cast<double>(largest_free) / static_cast<double>(free);
  }
};

// Smallest block that fits; neighbours are joined when freed. Logarithmic time. Not thread-safe.
class OffsetAllocator {
 public:
  // Manages [begin, end). Sizes are rounded up to `granularity`, a power of two.
  OffsetAllocator(std::uint64_t begin, std::uint64_t end, std::uint64_t granularity);

  // Offset of `bytes` bytes (0 counts as 1) at a multiple of `alignment`, a power of two; nothing when no free block
  // is large enough.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t alignment);
  // Aborts when `offset` was not handed out.
  void free(std::uint64_t offset);

  ArenaFigures figures() const;

 private:
  void add_free(std::uint64_t begin, std::uint64_t end);
  void remove_free(std::map<std::uint64_t, std::uint64_t>::iterator block);

  std::uint64_t begin_;
  std::uint64_t end_;
  std::uint64_t granularity_;
  std::map<std::uint64_t, std::uint64_t> free_;                     // begin to end
  std::set<std::pair<std::uint64_t, std::uint64_t>> free_by_size_;  // size, begin
  std::unordered_map<std::uint64_t, std::uint64_t> used_;           // begin to end
  std::uint64_t used_bytes_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace tesser::transport
