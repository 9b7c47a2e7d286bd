#include "hub/chunk_map.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica_run.h"

namespace tesser::hub {
namespace {

TEST(ChunkMapTest, ChunksCoverEachTensorOnce) {
  const JobSettings settings = settings_for(1, {1, 8192, 8193, 100'000});
  const auto map = map_chunks(settings, {2, 1});
  ASSERT_TRUE(map.has_value()) << map.error().message;
  for (std::uint32_t key = 0; key < settings.keys.size(); ++key) {
    std::int64_t next = map->key_begin[key];
    EXPECT_EQ(next % 16, 0);
    for (std::uint32_t chunk = map->first_chunk[key]; chunk < map->first_chunk[key + 1]; ++chunk) {
      EXPECT_EQ(map->chunks[chunk].key, key);
      EXPECT_EQ(map->chunks[chunk].begin, next);
      EXPECT_LE(map->chunks[chunk].elements, 8192);
      next += map->chunks[chunk].elements;
    }
    EXPECT_EQ(next, map->key_begin[key] + settings.keys[key].elements);
    EXPECT_LE(next, map->elements);
  }
}

TEST(ChunkMapTest, ACoreOwnsATensorsChunksInOnePiece) {
  const auto map = map_chunks(settings_for(1, {200'000, 8192, 100'000}), {3});
  ASSERT_TRUE(map.has_value());
  for (std::uint32_t key = 0; key < 3; ++key) {
    std::vector<std::uint32_t> turns;  // of owners, in the order of whole chunks
    for (std::uint32_t chunk = map->first_chunk[key]; chunk < map->first_chunk[key + 1]; ++chunk) {
      const Chunk& each = map->chunks[chunk];
      if (each.elements == 8192 && (turns.empty() || turns.back() != each.core)) {
        turns.push_back(each.core);
      }
    }
    EXPECT_THAT(turns, ::testing::Each(::testing::Lt(3U)));
    std::sort(turns.begin(), turns.end());
    EXPECT_EQ(std::adjacent_find(turns.begin(), turns.end()), turns.end()) << "tensor " << key;
  }
  for (const ChunkMap::Load& load : map->loads[0]) {
    EXPECT_NEAR(static_cast<double>(load.elements), 308'192.0 / 3, 8192);
  }
}

TEST(ChunkMapTest, SharesCountEachChunkWhereItIsOwned) {
  const auto map = map_chunks(settings_for(1, {1, 8192, 8193, 100'000}), {2, 1});
  ASSERT_TRUE(map.has_value());
  for (std::uint32_t key = 0; key < map->shares.size(); ++key) {
    for (std::uint32_t hub = 0; hub < map->loads.size(); ++hub) {
      for (std::uint32_t core = 0; core < map->loads[hub].size(); ++core) {
        const auto begin = map->chunks.begin() + map->first_chunk[key];
        const auto owned = std::count_if(begin, begin + map->chunks_of(key),
                                         [&](const Chunk& chunk) { return chunk.hub == hub && chunk.core == core; });
        EXPECT_EQ(map->chunks_of(key, hub, core), owned) << key << " " << hub << " " << core;
      }
    }
  }
}

TEST(ChunkMapTest, CoresAreBalanced) {
  // Sizes that arrive in the worst order: the smallest first.
  const auto map = map_chunks(settings_for(1, {10, 20, 4000, 8192, 8192, 30'000, 60'000}), {1, 2, 1});
  ASSERT_TRUE(map.has_value());
  std::int64_t total = 0;
  std::int64_t most = 0;
  for (const auto& hub : map->loads) {
    for (const auto& core : hub) {
      total += core.elements;
      most = std::max(most, core.elements);
    }
  }
  EXPECT_EQ(total, 10 + 20 + 4000 + 2 * 8192 + 90'000);
  EXPECT_LE(static_cast<double>(most), 4.0 / 3 * std::max(static_cast<double>(total) / 4, 8192.0));
}

TEST(ChunkMapTest, TooManyChunksAreRefused) {
  JobSettings settings = settings_for(1, {std::int64_t{1} << 32});
  settings.chunk_bytes = 64;
  const auto map = map_chunks(settings, {1});
  ASSERT_FALSE(map.has_value());
  EXPECT_THAT(map.error().message, ::testing::HasSubstr("larger chunks"));
}

}  // namespace
}  // namespace tesser::hub
