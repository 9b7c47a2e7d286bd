#include "memory/offset_list.h"

#include <algorithm>

namespace tesser::memory {
namespace {

constexpr std::size_t kLargestChunk = 256;

}  // namespace

std::int64_t OffsetList::insert(const Block& block, FitRule rule, std::int64_t& work) {
  const std::int64_t offset = find_gap(block, rule, work);
  keep({offset, offset + block.bytes, block.first_node, block.last_node});
  return offset;
}

std::int64_t OffsetList::find_gap(const Block& block, FitRule rule, std::int64_t& work) const {
  std::int64_t top = 0;  // end of the highest block of the same time so far
  std::int64_t best = -1;
  std::int64_t best_gap = std::numeric_limits<std::int64_t>::max();
  for (const Chunk& chunk : chunks_) {
    ++work;
    if (chunk.first_node > block.last_node || chunk.last_node < block.first_node) {
      continue;
    }
    work += static_cast<std::int64_t>(chunk.entries.size());
    for (const Entry& entry : chunk.entries) {
      if (entry.first_node > block.last_node || entry.last_node < block.first_node) {
        continue;
      }
      const std::int64_t offset = align_up(top, block.alignment);
      if (offset + block.bytes <= entry.begin && entry.begin - top < best_gap) {
        if (rule == FitRule::kFirst) {
          return offset;
        }
        best = offset;
        best_gap = entry.begin - top;
      }
      top = std::max(top, entry.end);
    }
  }
  return best >= 0 ? best : align_up(top, block.alignment);
}

void OffsetList::keep(const Entry& entry) {
  if (chunks_.empty()) {
    chunks_.emplace_back();
  }
  // The last chunk that begins at or below the entry.
  auto chunk =
      std::upper_bound(chunks_.begin(), chunks_.end(), entry.begin, [](std::int64_t begin, const Chunk& candidate) {
        return !candidate.entries.empty() && begin < candidate.entries.front().begin;
      });
  if (chunk != chunks_.begin()) {
    --chunk;
  }
  const auto at = std::upper_bound(chunk->entries.begin(), chunk->entries.end(), entry.begin,
                                   [](std::int64_t begin, const Entry& candidate) { return begin < candidate.begin; });
  chunk->entries.insert(at, entry);
  chunk->first_node = std::min(chunk->first_node, entry.first_node);
  chunk->last_node = std::max(chunk->last_node, entry.last_node);
  if (chunk->entries.size() <= kLargestChunk) {
    return;
  }
  const auto hull = [](Chunk& part) {
    part.first_node = std::numeric_limits<std::int32_t>::max();
    part.last_node = std::numeric_limits<std::int32_t>::min();
    for (const Entry& one : part.entries) {
      part.first_node = std::min(part.first_node, one.first_node);
      part.last_node = std::max(part.last_node, one.last_node);
    }
  };
  Chunk upper;
  const auto middle = chunk->entries.begin() + kLargestChunk / 2;
  upper.entries.assign(middle, chunk->entries.end());
  chunk->entries.erase(middle, chunk->entries.end());
  hull(*chunk);
  hull(upper);
  chunks_.insert(chunk + 1, std::move(upper));
}

}  // namespace tesser::memory
