#include "memory/sweep.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "memory/offset_list.h"

namespace tesser::memory {
namespace {

// Free gaps of an arena without an end.
class Gaps {
 public:
  Gaps() { add(0, std::numeric_limits<std::int64_t>::max() / 2); }

  std::int64_t take(const Block& block) {
    // Alignment may make a gap too small; the next larger one is tried then.
    for (auto found = by_size_.lower_bound({block.bytes, 0}); found != by_size_.end(); ++found) {
      const auto [size, begin] = *found;
      const std::int64_t offset = align_up(begin, block.alignment);
      if (offset + block.bytes > begin + size) {
        continue;
      }
      remove(begin, size);
      if (offset > begin) {
        add(begin, offset - begin);
      }
      if (const std::int64_t rest = begin + size - offset - block.bytes; rest > 0) {
        add(offset + block.bytes, rest);
      }
      return offset;
    }
    return 0;  // not reached: the last gap has no end
  }

  void give_back(std::int64_t begin, std::int64_t size) {
    const auto next = by_begin_.lower_bound(begin);
    if (next != by_begin_.end() && next->first == begin + size) {
      size += next->second;
      remove(next->first, next->second);
    }
    const auto after = by_begin_.lower_bound(begin);
    if (after != by_begin_.begin()) {
      const auto [before_begin, before_size] = *std::prev(after);
      if (before_begin + before_size == begin) {
        remove(before_begin, before_size);
        begin = before_begin;
        size += before_size;
      }
    }
    add(begin, size);
  }

 private:
  void add(std::int64_t begin, std::int64_t size) {
    by_begin_.emplace(begin, size);
    by_size_.emplace(size, begin);
  }
  void remove(std::int64_t begin, std::int64_t size) {
    by_begin_.erase(begin);
    by_size_.erase({size, begin});
  }

  std::map<std::int64_t, std::int64_t> by_begin_;            // size by begin
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;  // size and begin
};

}  // namespace

std::vector<std::int64_t> sweep(std::span<const Block> blocks, TimeDirection direction) {
  // Backward is forward with time mirrored.
  const auto begin_of = [&](std::size_t index) {
    return direction == TimeDirection::kForward ? std::int64_t{blocks[index].first_node}
                                                : -std::int64_t{blocks[index].last_node};
  };
  const auto end_of = [&](std::size_t index) {
    return direction == TimeDirection::kForward ? std::int64_t{blocks[index].last_node}
                                                : -std::int64_t{blocks[index].first_node};
  };
  std::vector<std::size_t> order;
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    if (blocks[index].bytes > 0) {
      order.push_back(index);
    }
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    // Among those of one time the longest-lived first: they settle at the bottom.
    return std::tuple(begin_of(a), -end_of(a), -blocks[a].bytes, a) <
           std::tuple(begin_of(b), -end_of(b), -blocks[b].bytes, b);
  });
  Gaps gaps;
  using Ending = std::pair<std::int64_t, std::size_t>;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> live;
  std::vector<std::int64_t> offsets(blocks.size());
  for (const std::size_t index : order) {
    while (!live.empty() && live.top().first < begin_of(index)) {
      const std::size_t ended = live.top().second;
      gaps.give_back(offsets[ended], blocks[ended].bytes);
      live.pop();
    }
    offsets[index] = gaps.take(blocks[index]);
    live.emplace(end_of(index), index);
  }
  return offsets;
}

}  // namespace tesser::memory
