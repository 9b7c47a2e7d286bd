#include "platform/job/placement.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Node node(const std::string& name, std::int64_t cpus, std::int64_t gib = 0,
          std::map<std::string, std::int64_t> accelerators = {}) {
  return {name, {cpus * 1000, gib * kGiB, std::move(accelerators)}, true, ""};
}

WaitingJob waiting(const std::string& id, std::int64_t submitted, int learners, std::int64_t cpus, std::int64_t gib = 0,
                   std::map<std::string, std::int64_t> accelerators = {}) {
  WaitingJob job;
  job.id = id;
  job.submitted_microseconds = submitted;
  job.learners = learners;
  job.each = {cpus * 1000, gib * kGiB, std::move(accelerators)};
  return job;
}

TEST(Placement, TheFirstThatCameIsTheFirstServed) {
  const ClusterSnapshot snapshot{{node("a", 4)}, {}, {waiting("late", 2, 1, 3), waiting("early", 1, 1, 3)}};
  const auto decisions = place_first_come_first_served(snapshot);
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(decisions[0].job, "early");
  EXPECT_EQ(decisions[0].nodes, Placement{"a"});
  EXPECT_EQ(decisions[0].place_in_queue, 0);
  EXPECT_EQ(decisions[1].job, "late");
  EXPECT_TRUE(decisions[1].nodes.empty());
  EXPECT_EQ(decisions[1].place_in_queue, 1);
  EXPECT_EQ(decisions[1].reason, "needs 1 learner with 3 cpus; none fit now; a has 1 cpu free");
}

TEST(Placement, AllLearnersOrNone) {
  const ClusterSnapshot snapshot{
      {node("a", 2), node("b", 2)}, {{"x", "", 50, {"b"}, {1000, 0, {}}}}, {waiting("gang", 1, 4, 1)}};
  const auto decisions = place_first_come_first_served(snapshot);
  EXPECT_TRUE(decisions[0].nodes.empty());
  EXPECT_EQ(decisions[0].reason, "needs 4 learners with 1 cpu each; 3 fit now; a has 2 cpus free; b has 1 cpu free");
}

TEST(Placement, AJobThatDoesNotFitKeepsThoseBehindItWaiting) {
  const ClusterSnapshot snapshot{{node("a", 2)}, {}, {waiting("large", 1, 3, 1), waiting("small", 2, 1, 1)}};
  const auto decisions = place_first_come_first_served(snapshot);
  EXPECT_TRUE(decisions[1].nodes.empty());
  EXPECT_EQ(decisions[1].place_in_queue, 2);
  EXPECT_EQ(decisions[1].reason, "waits behind 1 job; the first, large, needs 3 learners with 1 cpu each");
}

TEST(Placement, LearnersShareFewNodesAndLeaveLargeGapsWhole) {
  const std::vector<Node> nodes = {node("a", 8), node("b", 2), node("c", 4)};
  EXPECT_EQ(place_first_come_first_served({nodes, {}, {waiting("j", 1, 2, 1)}})[0].nodes, (Placement{"b", "b"}));
  EXPECT_EQ(place_first_come_first_served({nodes, {}, {waiting("j", 1, 3, 1)}})[0].nodes, (Placement{"c", "c", "c"}));
  const auto ten = place_first_come_first_served({nodes, {}, {waiting("j", 1, 10, 1)}})[0].nodes;
  EXPECT_EQ(std::count(ten.begin(), ten.end(), "a"), 8);
  EXPECT_EQ(std::count(ten.begin(), ten.end(), "b"), 2);
  const std::vector<Node> equal = {node("a", 2), node("b", 2)};
  EXPECT_EQ(place_first_come_first_served({equal, {}, {waiting("j", 1, 2, 2)}})[0].nodes, (Placement{"a", "b"}));
}

TEST(Placement, EveryResourceCounts) {
  const std::vector<Node> nodes = {node("a", 8, 4), node("b", 8, 64, {{"V100", 2}})};
  EXPECT_EQ(place_first_come_first_served({nodes, {}, {waiting("j", 1, 1, 1, 8)}})[0].nodes, Placement{"b"});
  EXPECT_EQ(place_first_come_first_served({nodes, {}, {waiting("j", 1, 2, 1, 1, {{"V100", 1}})}})[0].nodes,
            (Placement{"b", "b"}));
  const auto three = place_first_come_first_served({nodes, {}, {waiting("j", 1, 3, 1, 1, {{"V100", 1}})}})[0];
  EXPECT_EQ(three.reason,
            "needs 3 learners with 1 cpu, 1 GiB, 1 V100 each; 2 fit now; b has 8 cpus, 64 GiB, 2 V100 free; "
            "a has 8 cpus, 4 GiB, 0 V100 free");
  // A node that does not say how much memory it has takes any.
  EXPECT_EQ(place_first_come_first_served({{node("a", 1)}, {}, {waiting("j", 1, 1, 1, 999)}})[0].nodes.size(), 1U);
}

TEST(Placement, NodesThatAreNotReadyTakeNothingAndSayWhy) {
  Node drained = node("b", 8);
  drained.is_ready = false;
  drained.not_ready = "drained";
  const auto decision = place_first_come_first_served({{node("a", 1), drained}, {}, {waiting("j", 1, 1, 2)}})[0];
  EXPECT_TRUE(decision.nodes.empty());
  EXPECT_THAT(decision.reason, AllOf(HasSubstr("a has 1 cpu free"), HasSubstr("b takes none: drained")));
  EXPECT_EQ(why_never(waiting("j", 1, 1, 2), {node("a", 1), drained}), "");
  EXPECT_THAT(place_first_come_first_served({{}, {}, {waiting("j", 1, 1, 2)}})[0].reason, HasSubstr("no nodes"));
}

TEST(Placement, WhatNeverFitsSaysTheLargestThatDoes) {
  const std::vector<Node> nodes = {node("a", 2, 8), node("b", 4, 8)};
  EXPECT_EQ(why_never(waiting("j", 1, 3, 2), nodes), "");
  EXPECT_EQ(why_never(waiting("j", 1, 7, 1), nodes),
            "needs 7 learners with 1 cpu each, but 6 learners of this size fit on all nodes together");
  EXPECT_EQ(why_never(waiting("j", 1, 2, 4, 16), nodes),
            "needs 2 learners with 4 cpus, 16 GiB each, but no node is large enough for one; the largest, b, has 4 "
            "cpus, 8 GiB");
  EXPECT_EQ(why_never(waiting("j", 1, 1, 1), {}), "needs 1 learner with 1 cpu, but there are no nodes");
}

// Whatever is asked for: no node gives more than it has, places are whole gangs, and the order of the queue is kept.
TEST(Placement, RandomQueuesKeepTheRules) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto number = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    ClusterSnapshot snapshot;
    for (int i = 0; i < number(1, 6); ++i) {
      snapshot.nodes.push_back(node(std::to_string(i), number(1, 8), number(1, 16), {{"g", number(0, 4)}}));
      snapshot.nodes.back().is_ready = number(0, 5) > 0;
    }
    for (int i = 0; i < number(1, 8); ++i) {
      snapshot.waiting.push_back(
          waiting(std::to_string(i), number(0, 3), number(1, 4), number(1, 4), number(0, 6), {{"g", number(0, 1)}}));
    }
    std::map<std::string, Resources> used;  // and a processor more each, which Resources begin with
    bool has_waiting = false;
    for (const PlacementDecision& decision : place_first_come_first_served(snapshot)) {
      const WaitingJob& job = snapshot.waiting[static_cast<std::size_t>(std::stoi(decision.job))];
      EXPECT_EQ(decision.reason.empty(), !decision.nodes.empty());
      EXPECT_FALSE(has_waiting && !decision.nodes.empty()) << "seed " << seed;
      has_waiting = has_waiting || decision.nodes.empty();
      if (!decision.nodes.empty()) {
        EXPECT_EQ(decision.nodes.size(), static_cast<std::size_t>(job.learners));
        EXPECT_EQ(why_never(job, snapshot.nodes), "") << "seed " << seed;
      }
      for (const std::string& name : decision.nodes) {
        used[name].millicpus += job.each.millicpus;
        used[name].memory_bytes += job.each.memory_bytes;
        used[name].accelerators["g"] += job.each.accelerators.at("g");
      }
    }
    for (const Node& each : snapshot.nodes) {
      if (used.contains(each.name)) {
        EXPECT_TRUE(each.is_ready);
        EXPECT_LE(used[each.name].millicpus - 1000, each.capacity.millicpus) << "seed " << seed;
        EXPECT_LE(used[each.name].memory_bytes, each.capacity.memory_bytes) << "seed " << seed;
        EXPECT_LE(used[each.name].accelerators["g"], each.capacity.accelerators.at("g")) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace tesser::platform
