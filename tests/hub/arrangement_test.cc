#include "hub/arrangement.h"

#include <gtest/gtest.h>

namespace tesser::hub {
namespace {

constexpr double kModel = 100e6;
constexpr double kLink = 1.25e9;  // 10 Gbit/s

TEST(ArrangementTest, BytesAreThoseOfThePaper) {
  const auto all = arrangements(kModel, {.workers = 8, .worker_bandwidth = kLink, .hubs = 1, .hub_bandwidth = kLink});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].name, "colocated, sharded");
  EXPECT_DOUBLE_EQ(all[0].bytes, 4 * kModel * 7 / 8);
  EXPECT_DOUBLE_EQ(all[0].seconds, 2 * kModel * 7 / 8 / kLink);
  EXPECT_EQ(all[1].name, "colocated, central");
  EXPECT_DOUBLE_EQ(all[1].bytes, 2 * kModel * 7);
  EXPECT_EQ(all[2].name, "dedicated");
  EXPECT_DOUBLE_EQ(all[2].bytes, 2 * kModel * 8);
}

TEST(ArrangementTest, ADedicatedHubWinsWithTheBandwidthOfItsRack) {
  const auto all =
      arrangements(kModel, {.workers = 8, .worker_bandwidth = kLink, .hubs = 1, .hub_bandwidth = 8 * kLink});
  EXPECT_EQ(all[0].name, "dedicated");
  EXPECT_EQ(all[0].machine, "worker");
  EXPECT_DOUBLE_EQ(all[0].bytes, 2 * kModel);
}

TEST(ArrangementTest, AsManyHubsAsWorkersCarryAsMuchAsThese) {
  const auto all = arrangements(kModel, {.workers = 4, .worker_bandwidth = kLink, .hubs = 4, .hub_bandwidth = kLink});
  EXPECT_EQ(all[0].name, "dedicated, sharded");
  EXPECT_DOUBLE_EQ(all[0].bytes, 2 * kModel);
}

TEST(ArrangementTest, WithoutHubsShardsWin) {
  const auto all = arrangements(kModel, {.workers = 3, .worker_bandwidth = kLink});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "colocated, sharded");
}

}  // namespace
}  // namespace tesser::hub
