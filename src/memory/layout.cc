#include "memory/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "base/check.h"
#include "memory/offset_list.h"
#include "memory/skyline.h"
#include "memory/sweep.h"

namespace tesser::memory {
namespace {

// Entries of placed blocks looked at, over all orders: bounds the time by a count, so that the result never depends on
// the machine.
constexpr std::int64_t kWork = 200'000'000;
constexpr std::int64_t kWorkOfOneOrder = kWork / 4;
constexpr int kImprovements = 64;

using Order = std::vector<std::int32_t>;  // indices of blocks

std::int64_t duration(const Block& block) { return std::int64_t{block.last_node} - block.first_node + 1; }

// Blocks that take space, by a key, largest first; ties by start, then by index.
template <typename Key>
Order order_by(std::span<const Block> blocks, const Order& all, const Key& key) {
  Order order = all;
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t left, std::int32_t right) {
    const Block& a = blocks[static_cast<std::size_t>(left)];
    const Block& b = blocks[static_cast<std::size_t>(right)];
    const auto a_key = key(a);
    const auto b_key = key(b);
    return a_key != b_key ? a_key > b_key : a.first_node < b.first_node;
  });
  return order;
}

std::int64_t most_live_bytes(std::span<const Block> blocks) {
  struct Change {
    std::int64_t node;
    std::int64_t bytes;
  };
  std::vector<Change> changes;
  changes.reserve(2 * blocks.size());
  for (const Block& block : blocks) {
    changes.push_back({block.first_node, block.bytes});
    changes.push_back({std::int64_t{block.last_node} + 1, -block.bytes});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.node != b.node ? a.node < b.node : a.bytes < b.bytes;  // what ends before what begins
  });
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const Change& change : changes) {
    live += change.bytes;
    most = std::max(most, live);
  }
  return most;
}

class Search {
 public:
  explicit Search(std::span<const Block> blocks) : blocks_(blocks) {
    for (std::size_t index = 0; index < blocks.size(); ++index) {
      if (blocks[index].bytes > 0) {
        all_.push_back(static_cast<std::int32_t>(index));
      }
    }
    best_.offsets.assign(blocks.size(), 0);
    best_.total = all_.empty() ? 0 : std::numeric_limits<std::int64_t>::max();
    best_.lower_bound = most_live_bytes(blocks);
  }

  Layout run() {
    const Order by_duration = order_by(blocks_, all_, [](const Block& b) { return duration(b); });
    const Order by_size = order_by(blocks_, all_, [](const Block& b) { return b.bytes; });
    const Order by_area = order_by(
        blocks_, all_, [](const Block& b) { return static_cast<double>(b.bytes) * static_cast<double>(duration(b)); });
    const Order by_start = order_by(blocks_, all_, [](const Block& b) { return -std::int64_t{b.first_node}; });

    stack(by_duration);  // nested lifetimes, as those of forward and backward, stack without a gap
    stack(by_start);
    sweep_in(TimeDirection::kForward);
    sweep_in(TimeDirection::kBackward);
    for (const FitRule rule : {FitRule::kFirst, FitRule::kBest}) {
      for (const Order* const order : {&by_size, &by_duration, &by_area, &by_start}) {
        fit(*order, rule);
      }
    }
    improve();
    return std::move(best_);
  }

 private:
  bool done() const { return best_.total <= best_.lower_bound || all_.empty(); }

  void keep(const std::vector<std::int64_t>& offsets, std::int64_t total, const Order& order) {
    if (total < best_.total) {
      best_.offsets = offsets;
      best_.total = total;
      best_order_ = order;
    }
  }

  // Each block on top of everything placed before it that lives at the same time.
  void stack(const Order& order) {
    if (done()) {
      return;
    }
    Skyline skyline(blocks_);
    std::vector<std::int64_t> offsets(blocks_.size());
    std::int64_t total = 0;
    for (const std::int32_t index : order) {
      const Block& block = blocks_[static_cast<std::size_t>(index)];
      const std::int64_t offset = align_up(skyline.highest(index), block.alignment);
      skyline.raise(index, offset + block.bytes);
      offsets[static_cast<std::size_t>(index)] = offset;
      total = std::max(total, offset + block.bytes);
    }
    keep(offsets, total, order);
  }

  void sweep_in(TimeDirection direction) {
    if (done()) {
      return;
    }
    const std::vector<std::int64_t> offsets = sweep(blocks_, direction);
    std::int64_t total = 0;
    for (const std::int32_t index : all_) {
      total =
          std::max(total, offsets[static_cast<std::size_t>(index)] + blocks_[static_cast<std::size_t>(index)].bytes);
    }
    keep(offsets, total, all_);
  }

  // Each block into a gap between the blocks placed before it. Gives up when it gets no better than the best so far, or
  // when the work is used up: stacks and sweeps have given a complete layout by then.
  void fit(const Order& order, FitRule rule) {
    if (done()) {
      return;
    }
    OffsetList placed;
    const std::int64_t allowed = std::min(kWork, work_ + kWorkOfOneOrder);
    std::vector<std::int64_t> offsets(blocks_.size());
    std::int64_t total = 0;
    for (const std::int32_t index : order) {
      const Block& block = blocks_[static_cast<std::size_t>(index)];
      const std::int64_t offset = placed.insert(block, rule, work_);
      offsets[static_cast<std::size_t>(index)] = offset;
      total = std::max(total, offset + block.bytes);
      if (total >= best_.total || work_ > allowed) {
        failed_at_ = index;
        return;
      }
    }
    failed_at_ = -1;
    keep(offsets, total, order);
  }

  // Moves the block that broke an order (it rose above the best total) to its front and tries again.
  void improve() {
    Order order = best_order_;
    for (int round = 0; round < kImprovements && !done() && work_ < kWork; ++round) {
      std::int32_t to_front = highest_block();
      const std::int64_t before = best_.total;
      for (int move = 0; move < 8 && best_.total == before && work_ < kWork; ++move) {
        const auto place = std::find(order.begin(), order.end(), to_front);
        std::rotate(order.begin(), place, place + 1);
        fit(order, FitRule::kBest);
        if (failed_at_ < 0) {
          break;
        }
        to_front = failed_at_;
      }
    }
  }

  std::int32_t highest_block() const {
    return *std::find_if(all_.begin(), all_.end(), [this](std::int32_t index) {
      const auto place = static_cast<std::size_t>(index);
      return best_.offsets[place] + blocks_[place].bytes == best_.total;
    });
  }

  std::span<const Block> blocks_;
  Order all_;
  Layout best_;
  Order best_order_;
  std::int64_t work_ = 0;
  std::int32_t failed_at_ = -1;
};

}  // namespace

Layout place(std::span<const Block> blocks) {
  for (const Block& block : blocks) {
    TESSER_CHECK(block.bytes >= 0, std::to_string(block.bytes) + " bytes");
    TESSER_CHECK(block.first_node <= block.last_node,
                 "a block from node " + std::to_string(block.first_node) + " to " + std::to_string(block.last_node));
    TESSER_CHECK(block.alignment > 0 && (block.alignment & (block.alignment - 1)) == 0,
                 "alignment " + std::to_string(block.alignment));
  }
  return Search(blocks).run();
}

}  // namespace tesser::memory
