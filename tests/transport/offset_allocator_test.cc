#include "transport/offset_allocator.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "transport/registered_arena.h"

namespace tesser::transport {
namespace {

TEST(OffsetAllocator, RandomBlocksNeverOverlapAndAllMemoryComesBack) {
  constexpr std::uint64_t kBegin = 128;
  constexpr std::uint64_t kEnd = 1 << 20;
  OffsetAllocator allocator(kBegin, kEnd, 64);
  std::mt19937 random(3);
  std::map<std::uint64_t, std::uint64_t> blocks;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (blocks.empty() || random() % 100 < 55) {
      const std::uint64_t bytes = random() % 8 == 0 ? random() % 100'000 : random() % 2000;
      const std::uint64_t alignment = std::uint64_t{1} << random() % 13;
      const auto offset = allocator.allocate(bytes, alignment);
      if (!offset) {
        ++refused;
        EXPECT_LT(allocator.figures().largest_free, bytes + alignment + 64);
        continue;
      }
      EXPECT_EQ(*offset % alignment, 0U);
      EXPECT_GE(*offset, kBegin);
      EXPECT_LE(*offset + bytes, kEnd);
      const auto next = blocks.lower_bound(*offset);
      EXPECT_TRUE(next == blocks.end() || *offset + bytes <= next->first);
      EXPECT_TRUE(next == blocks.begin() || std::prev(next)->second <= *offset);
      blocks[*offset] = *offset + std::max<std::uint64_t>(bytes, 1);
    } else {
      auto victim = blocks.begin();
      std::advance(victim, random() % blocks.size());
      allocator.free(victim->first);
      blocks.erase(victim);
    }
    EXPECT_EQ(allocator.figures().blocks, blocks.size());
  }
  EXPECT_GT(refused, 0);
  for (const auto& [offset, end] : blocks) {
    allocator.free(offset);
  }
  const ArenaFigures figures = allocator.figures();
  EXPECT_EQ(figures.used, 0U);
  EXPECT_EQ(figures.free_blocks, 1U);
  EXPECT_EQ(figures.largest_free, kEnd - kBegin);
  EXPECT_EQ(figures.fragmentation(), 0);
  EXPECT_GT(figures.peak, (kEnd - kBegin) / 2);
}

TEST(OffsetAllocator, FragmentationIsWhatIsNotInTheLargestPiece) {
  OffsetAllocator allocator(0, 4 * 64, 64);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(allocator.allocate(64, 1), i * 64U);
  }
  EXPECT_FALSE(allocator.allocate(1, 1));
  allocator.free(0);
  allocator.free(128);
  EXPECT_EQ(allocator.figures().fragmentation(), 0.5);
  EXPECT_FALSE(allocator.allocate(65, 1));
  allocator.free(64);
  EXPECT_EQ(allocator.figures().fragmentation(), 0);
  EXPECT_EQ(allocator.allocate(192, 1), 0U);
}

TEST(OffsetAllocatorDeathTest, WhatWasNotHandedOutCannotBeFreed) {
  OffsetAllocator allocator(0, 4096, 64);
  EXPECT_DEATH(allocator.free(64), "not handed out");
}

TEST(RegisteredArena, ARefusalSaysWhatIsFree) {
  RegisteredArena arena(std::make_shared<MemoryRegion>(std::move(*MemoryRegion::map(1, 1, 4096, {.name = "small"}))));
  ASSERT_TRUE(arena.allocate(1000));
  const auto refused = arena.allocate(4000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, FailureKind::kOutOfMemory);
  EXPECT_EQ(refused.error().message,
            "region 'small' has no 4000 bytes together: 3072 of 4096 are free, the largest piece has 3072; allocate a "
            "larger region");
}

}  // namespace
}  // namespace tesser::transport
