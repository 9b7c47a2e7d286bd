#include "transport/offset_allocator.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"

namespace tesser::transport {
namespace {

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

bool is_power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

OffsetAllocator::OffsetAllocator(std::uint64_t begin, std::uint64_t end, std::uint64_t granularity)
    : begin_(begin), end_(end), granularity_(granularity) {
  TESSER_CHECK(is_power_of_two(granularity) && begin % granularity == 0 && begin <= end, std::to_string(granularity));
  if (begin < end) {
    add_free(begin, end);
  }
}

std::optional<std::uint64_t> OffsetAllocator::allocate(std::uint64_t bytes, std::uint64_t alignment) {
  TESSER_CHECK(is_power_of_two(alignment), std::to_string(alignment));
  if (bytes > end_ - begin_) {
    return std::nullopt;
  }
  const std::uint64_t size = align_up(std::max<std::uint64_t>(bytes, 1), granularity_);
  for (auto found = free_by_size_.lower_bound({size, 0}); found != free_by_size_.end(); ++found) {
    const std::uint64_t block_begin = found->second;
    const std::uint64_t block_end = block_begin + found->first;
    const std::uint64_t offset = align_up(block_begin, alignment);
    if (offset < block_begin || offset > block_end || block_end - offset < size) {
      continue;  // the alignment takes too much of this block
    }
    remove_free(free_.find(block_begin));
    if (offset > block_begin) {
      add_free(block_begin, offset);
    }
    if (offset + size < block_end) {
      add_free(offset + size, block_end);
    }
    used_.emplace(offset, offset + size);
    used_bytes_ += size;
    peak_ = std::max(peak_, used_bytes_);
    return offset;
  }
  return std::nullopt;
}

void OffsetAllocator::free(std::uint64_t offset) {
  const auto block = used_.find(offset);
  TESSER_CHECK(block != used_.end(), "offset " + std::to_string(offset) + ", which was not handed out");
  std::uint64_t begin = block->first;
  std::uint64_t end = block->second;
  used_bytes_ -= end - begin;
  used_.erase(block);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    const auto joined = next++;
    remove_free(joined);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second == begin) {
      begin = previous->first;
      remove_free(previous);
    }
  }
  add_free(begin, end);
}

ArenaFigures OffsetAllocator::figures() const {
  return {.capacity = end_ - begin_,
          .used = used_bytes_,
          .peak = peak_,
          .largest_free = free_by_size_.empty() ? 0 : free_by_size_.rbegin()->first,
          .blocks = used_.size(),
          .free_blocks = free_.size()};
}

void OffsetAllocator::add_free(std::uint64_t begin, std::uint64_t end) {
  free_.emplace(begin, end);
  free_by_size_.emplace(end - begin, begin);
}

void OffsetAllocator::remove_free(std::map<std::uint64_t, std::uint64_t>::iterator block) {
  free_by_size_.erase({block->second - block->first, block->first});
  free_.erase(block);
}

}  // namespace tesser::transport
