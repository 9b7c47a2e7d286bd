#include "runtime/data_order.h"

#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace tesser::runtime {
namespace {

// tests/python/train/test_data_order.py holds python/tesser/data.py against the same file.
TEST(DataOrder, EqualsTheReference) {
  std::ifstream file(TESSER_SOURCE_DIR "/tests/runtime/data_order.txt");
  std::string line;
  int orders = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::int64_t seed = 0;
    std::int64_t epoch = 0;
    std::int64_t samples = 0;
    words >> seed >> epoch >> samples;
    std::vector<std::uint32_t> expected;
    for (std::uint32_t sample = 0; words >> sample;) {
      expected.push_back(sample);
    }
    EXPECT_EQ(shuffled_order(seed, epoch, samples), expected) << line;
    ++orders;
  }
  EXPECT_GE(orders, 8);
}

TEST(DataOrder, IsAPermutationThatDependsOnSeedAndEpoch) {
  const auto order = shuffled_order(1, 0, 5000);
  const std::set<std::uint32_t> distinct(order.begin(), order.end());
  EXPECT_EQ(distinct.size(), 5000U);
  EXPECT_EQ(*distinct.rbegin(), 4999U);
  EXPECT_EQ(order, shuffled_order(1, 0, 5000));
  EXPECT_NE(order, shuffled_order(2, 0, 5000));
  EXPECT_NE(order, shuffled_order(1, 1, 5000));
  EXPECT_NE(order, shuffled_order(1 + (std::int64_t{1} << 32), 0, 5000));
}

TEST(DataOrder, SmallestSizes) {
  EXPECT_TRUE(shuffled_order(0, 0, 0).empty());
  EXPECT_EQ(shuffled_order(0, 0, 1), std::vector<std::uint32_t>{0});
}

}  // namespace
}  // namespace tesser::runtime
