#include "platform/scheduler/room.h"

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Resources resources(std::int64_t cpus, std::int64_t gib = 0, std::map<std::string, std::int64_t> accelerators = {}) {
  return {cpus * 1000, gib * kGiB, std::move(accelerators)};
}

TEST(WhyNever, SaysTheLargestThatFits) {
  const std::vector<Node> nodes = {{"a", resources(2, 8), true, ""}, {"b", resources(4, 8), true, ""}};
  EXPECT_EQ(why_never(3, resources(2), nodes), "");
  EXPECT_EQ(why_never(7, resources(1), nodes),
            "needs 7 learners with 1 cpu each, but 6 learners of this size fit on all nodes together");
  EXPECT_EQ(why_never(2, resources(4, 16), nodes),
            "needs 2 learners with 4 cpus, 16 GiB each, but no node is large enough for one; the largest, b, has 4 "
            "cpus, 8 GiB");
  EXPECT_EQ(why_never(1, resources(1), {}), "needs 1 learner with 1 cpu, but there are no nodes");
}

TEST(WhyNever, EveryResourceCountsAndNodesThatAreAwayToo) {
  const std::vector<Node> nodes = {{"a", resources(8), false, "is away"},
                                   {"b", resources(2, 4, {{"v100", 2}}), true, ""}};
  EXPECT_EQ(why_never(2, resources(1, 0, {{"v100", 1}}), nodes), "");
  EXPECT_EQ(why_never(3, resources(0, 0, {{"v100", 1}}), nodes),
            "needs 3 learners with 1 v100 each, but 2 learners of this size fit on all nodes together");
  EXPECT_EQ(why_never(1, resources(1, 0, {{"v100", 3}}), nodes),
            "needs 1 learner with 1 cpu, 3 v100, but no node is large enough for one; the largest, b, has 2 cpus, 2 "
            "v100");
  // A node that does not say how much memory it has takes any.
  EXPECT_EQ(why_never(8, resources(1, 999), nodes), "");
  EXPECT_EQ(why_never(1, resources(9), nodes),
            "needs 1 learner with 9 cpus, but no node is large enough for one; the largest, a, has 8 cpus");
}

}  // namespace
}  // namespace tesser::platform
