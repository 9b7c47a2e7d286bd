#include "platform/scheduler/gang_placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

std::vector<Node> alike(int count, std::int64_t accelerators) {
  std::vector<Node> nodes;
  for (int i = 0; i < count; ++i) {
    Node node;
    node.name = "node" + std::to_string(i);
    node.capacity = {8000, 0, {{"gpu", accelerators}}};
    nodes.push_back(node);
  }
  return nodes;
}

struct Fixture {
  explicit Fixture(const std::vector<Node>& nodes) : kinds(*ResourceKinds::of(nodes)), cluster(nodes, kinds) {}
  Amounts gpus(std::int64_t count) const { return kinds.asked({0, 0, {{"gpu", count}}}); }

  ResourceKinds kinds;
  Cluster cluster;
  RandomNumbers random{1};
};

std::map<int, int> counted(const std::vector<int>& nodes) {
  std::map<int, int> counts;
  for (const int node : nodes) {
    ++counts[node];
  }
  return counts;
}

TEST(GangPlacement, PacksOntoTheFewestNodes) {
  Fixture fixture(alike(10, 8));
  fixture.cluster.take(3, fixture.gpus(4));
  for (int samples : {0, 8}) {
    const auto nodes =
        place_gang(fixture.cluster, {16, fixture.gpus(1)}, {PlacementPolicy::kPack, samples, 1}, fixture.random);
    ASSERT_TRUE(nodes.has_value());
    EXPECT_LE(counted(*nodes).size(), samples == 0 ? 2u : 3u) << samples;
  }
}

TEST(GangPlacement, FillsTheFullestNodeThatIsLargeEnough) {
  Fixture fixture(alike(4, 8));
  fixture.cluster.take(2, fixture.gpus(6));
  fixture.cluster.take(1, fixture.gpus(3));
  const auto nodes = place_gang(fixture.cluster, {1, fixture.gpus(2)}, {PlacementPolicy::kPack, 0, 1}, fixture.random);
  EXPECT_EQ(nodes, std::vector<int>{2});
}

TEST(GangPlacement, RanksOfANodeAreNeighbours) {
  for (const auto policy : {PlacementPolicy::kPack, PlacementPolicy::kSpread}) {
    for (const int samples : {0, 8}) {
      Fixture fixture(alike(5, 4));
      const auto nodes = place_gang(fixture.cluster, {13, fixture.gpus(1)}, {policy, samples, 1}, fixture.random);
      ASSERT_TRUE(nodes.has_value());
      EXPECT_TRUE(std::is_sorted(nodes->begin(), nodes->end()));
    }
  }
}

TEST(GangPlacement, SpreadsOverAllNodes) {
  Fixture fixture(alike(8, 8));
  for (int samples : {0, 16}) {
    const auto nodes =
        place_gang(fixture.cluster, {8, fixture.gpus(1)}, {PlacementPolicy::kSpread, samples, 1}, fixture.random);
    ASSERT_TRUE(nodes.has_value());
    EXPECT_GE(counted(*nodes).size(), samples == 0 ? 8u : 6u) << samples;
  }
}

TEST(GangPlacement, IsAllOrNothingAndLeavesTheClusterAsItWas) {
  Fixture fixture(alike(3, 4));
  const Cluster::Classes before = fixture.cluster.classes();
  EXPECT_FALSE(place_gang(fixture.cluster, {13, fixture.gpus(1)}, {}, fixture.random).has_value());
  EXPECT_TRUE(place_gang(fixture.cluster, {12, fixture.gpus(1)}, {}, fixture.random).has_value());
  EXPECT_FALSE(place_gang(fixture.cluster, {4, fixture.gpus(3)}, {}, fixture.random).has_value());
  ASSERT_EQ(fixture.cluster.classes().size(), before.size());
  EXPECT_EQ(fixture.cluster.classes().begin()->first, before.begin()->first);
  EXPECT_EQ(fixture.cluster.classes().begin()->second.size(), before.begin()->second.size());
}

TEST(GangPlacement, BestFitFindsPlacesThatSamplesMiss) {
  // Learners of two sizes of nodes: any draw of a small one for a large learner does not exist, so what samples can
  // miss is only the last place of many.
  Fixture fixture(alike(200, 1));
  for (int node = 0; node < 200; node += 2) {
    fixture.cluster.take(node, fixture.gpus(1));
  }
  const auto nodes =
      place_gang(fixture.cluster, {100, fixture.gpus(1)}, {PlacementPolicy::kSpread, 1, 1}, fixture.random);
  ASSERT_TRUE(nodes.has_value());
  EXPECT_EQ(std::set<int>(nodes->begin(), nodes->end()).size(), 100u);
}

TEST(GangPlacement, RepeatsForASeed) {
  const auto once = [](std::uint64_t seed) {
    Fixture fixture(alike(50, 8));
    RandomNumbers random(seed);
    std::vector<int> all;
    for (int i = 0; i < 40; ++i) {
      const Gang gang{1 + i % 5, fixture.gpus(1 + i % 3)};
      const auto nodes = place_gang(fixture.cluster, gang, {}, random);
      for (const int node : *nodes) {
        fixture.cluster.take(node, gang.each);
        all.push_back(node);
      }
    }
    return all;
  };
  EXPECT_EQ(once(7), once(7));
  EXPECT_NE(once(7), once(8));
}

TEST(GangPlacement, ATypeThatNoNodeHasFitsNowhere) {
  Fixture fixture(alike(3, 4));
  const Amounts each = fixture.kinds.asked({0, 0, {{"tpu", 1}}});
  EXPECT_FALSE(gang_fits(fixture.cluster, {1, each}));
  EXPECT_FALSE(gang_fits(fixture.cluster, {1'000'000'000, each}));
}

}  // namespace
}  // namespace tesser::platform
