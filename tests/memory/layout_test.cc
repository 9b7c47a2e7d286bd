#include "memory/layout.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <gtest/gtest.h>

namespace tesser::memory {
namespace {

// Checks what place() promises; by sweeping the arena at each begin of a block, which is where overlaps show.
void expect_valid(const std::vector<Block>& blocks, const Layout& layout) {
  ASSERT_EQ(layout.offsets.size(), blocks.size());
  EXPECT_GE(layout.total, layout.lower_bound);
  std::int64_t highest = 0;
  for (std::size_t a = 0; a < blocks.size(); ++a) {
    ASSERT_GE(layout.offsets[a], 0);
    ASSERT_EQ(layout.offsets[a] % blocks[a].alignment, 0);
    highest = std::max(highest, layout.offsets[a] + blocks[a].bytes);
    for (std::size_t b = 0; b < a; ++b) {
      const bool same_time = blocks[a].first_node <= blocks[b].last_node && blocks[b].first_node <= blocks[a].last_node;
      const bool same_place = layout.offsets[a] < layout.offsets[b] + blocks[b].bytes &&
                              layout.offsets[b] < layout.offsets[a] + blocks[a].bytes;
      ASSERT_FALSE(same_time && same_place && blocks[a].bytes > 0 && blocks[b].bytes > 0)
          << "blocks " << b << " and " << a;
    }
  }
  EXPECT_EQ(layout.total, highest);
}

// Sizes over four powers of ten; always the same numbers for the same seed.
class Blocks {
 public:
  explicit Blocks(unsigned seed) : random_(seed) {}

  std::int64_t number(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }
  std::int64_t size() {
    std::int64_t size = 64;
    for (std::int64_t doublings = number(12); doublings > 0; --doublings) {
      size *= 2;
    }
    return size + 64 * number(16);
  }
  std::vector<Block> any(int count, std::int32_t longest) {
    std::vector<Block> blocks;
    for (int index = 0; index < count; ++index) {
      const auto first = static_cast<std::int32_t>(number(count));
      blocks.push_back({size(), first, first + static_cast<std::int32_t>(number(longest)), 64});
    }
    return blocks;
  }
  // As a training step: activations that the backward pass reads in the opposite order, and short-lived results between
  // them.
  std::vector<Block> training(int count) {
    std::vector<Block> blocks;
    for (std::int32_t index = 0; index < count; ++index) {
      const auto first = static_cast<std::int32_t>(number(count / 2));
      if (index % 2 == 0) {
        blocks.push_back({size(), first, count - first, 64});
      } else {
        const auto begin = static_cast<std::int32_t>(number(count));
        blocks.push_back({size(), begin, begin + static_cast<std::int32_t>(number(4)), 64});
      }
    }
    return blocks;
  }

 private:
  std::mt19937_64 random_;
};

TEST(LayoutTest, PlacesNothingAndEmptyBlocks) {
  EXPECT_EQ(place({}).total, 0);
  const std::vector<Block> blocks{{0, 0, 5, 64}, {0, 2, 3, 64}};
  const Layout layout = place(blocks);
  EXPECT_EQ(layout.total, 0);
  EXPECT_EQ(layout.lower_bound, 0);
  expect_valid(blocks, layout);
}

TEST(LayoutTest, SharesMemoryOverTime) {
  // The second may not share with the first, which ends at the node where the second begins; the third may.
  const std::vector<Block> blocks{{100, 0, 1, 64}, {100, 1, 2, 64}, {100, 2, 3, 64}};
  const Layout layout = place(blocks);
  EXPECT_EQ(layout.lower_bound, 200);
  EXPECT_EQ(layout.total, 228);  // the upper one at 128
  EXPECT_EQ(layout.offsets[0], layout.offsets[2]);
  expect_valid(blocks, layout);
}

TEST(LayoutTest, HonoursEachBlocksAlignment) {
  const std::vector<Block> blocks{{1, 0, 9, 1}, {1, 0, 9, 4096}, {3, 0, 9, 2}, {8, 0, 9, 1}, {64, 0, 9, 64}};
  expect_valid(blocks, place(blocks));
}

TEST(LayoutTest, NestedLifetimesTakeNoMoreThanTheirBound) {
  std::vector<Block> blocks;
  for (std::int32_t depth = 0; depth < 500; ++depth) {
    blocks.push_back({64 * (1 + depth * 7 % 13), depth, 1000 - depth, 64});
  }
  EXPECT_EQ(place(blocks).total, place(blocks).lower_bound);
}

TEST(LayoutTest, IsValidAndCloseToTheBoundOnRandomBlocks) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Blocks random(seed);
    const int count = 1 + static_cast<int>(random.number(300));
    const std::vector<Block> blocks = seed % 2 == 0 ? random.any(count, 1 + count / 4) : random.training(count);
    const Layout layout = place(blocks);
    expect_valid(blocks, layout);
    EXPECT_LE(static_cast<double>(layout.total), 1.06 * static_cast<double>(layout.lower_bound)) << "seed " << seed;
    EXPECT_EQ(place(blocks).offsets, layout.offsets) << "seed " << seed;
  }
}

TEST(LayoutTest, HandlesExtremeTimesAndSizes) {
  constexpr std::int32_t kLast = std::numeric_limits<std::int32_t>::max();
  const std::vector<Block> blocks{{std::int64_t{1} << 40, 0, kLast, 64},
                                  {std::int64_t{1} << 41, kLast, kLast, 64},
                                  {1, 0, 0, 64},
                                  {std::int64_t{1} << 40, 5, 5, 64}};
  const Layout layout = place(blocks);
  expect_valid(blocks, layout);
  EXPECT_EQ(layout.total, (std::int64_t{1} << 40) + (std::int64_t{1} << 41));
}

TEST(LayoutTest, PlacesFiftyThousandBlocksQuickly) {
  Blocks random(7);
  for (const std::vector<Block>& blocks : {random.training(50'000), random.any(50'000, 20), random.any(50'000, 5000)}) {
    const auto begin = std::chrono::steady_clock::now();
    const Layout layout = place(blocks);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LE(static_cast<double>(layout.total), 1.3 * static_cast<double>(layout.lower_bound));
    EXPECT_LT(seconds.count(), 20.0);  // some 0.5 s; generous for sanitizers and busy machines
  }
}

TEST(LayoutDeathTest, AbortsOnMistakesOfTheCaller) {
  EXPECT_DEATH(place(std::vector<Block>{{-1, 0, 0, 64}}), "found -1 bytes");
  EXPECT_DEATH(place(std::vector<Block>{{1, 3, 2, 64}}), "a block from node 3 to 2");
  EXPECT_DEATH(place(std::vector<Block>{{1, 0, 0, 48}}), "alignment 48");
  EXPECT_DEATH(place(std::vector<Block>{{1, 0, 0, 0}}), "alignment 0");
}

}  // namespace
}  // namespace tesser::memory
