#include "platform/scheduler/scheduler.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Resources gpus(std::int64_t count) { return {0, 0, {{"gpu", count}}}; }

SchedulerSnapshot cluster_of(int nodes, std::int64_t accelerators) {
  SchedulerSnapshot snapshot;
  for (int i = 1; i <= nodes; ++i) {
    Node node;
    node.name = "node" + std::to_string(i);
    node.capacity = gpus(accelerators);
    snapshot.nodes.push_back(node);
  }
  return snapshot;
}

JobRequest job(const std::string& id, std::int64_t learners, double submitted, const std::string& team = "a",
               int priority = 50, double longest = 0) {
  JobRequest request;
  request.id = id;
  request.team = team;
  request.priority = priority;
  request.submitted = submitted;
  request.learners = learners;
  request.each = gpus(1);
  request.longest = longest;
  return request;
}

RunningJob runs(const JobRequest& request, const Placement& nodes, double started = 0, bool is_borrowed = false) {
  RunningJob running;
  running.job = request;
  running.started = started;
  running.nodes = nodes;
  running.is_borrowed = is_borrowed;
  return running;
}

std::map<std::string, Decision> by_job(const SchedulerSnapshot& snapshot, const SchedulerSettings& settings = {}) {
  std::map<std::string, Decision> decisions;
  const auto all = schedule(snapshot, settings);
  EXPECT_TRUE(all.has_value());
  for (const Decision& decision : *all) {
    EXPECT_TRUE(decisions.emplace(decision.job, decision).second) << "two decisions for " << decision.job;
  }
  return decisions;
}

TEST(Scheduler, AGangGetsAllItsPlacesOrNone) {
  SchedulerSnapshot snapshot = cluster_of(2, 4);
  snapshot.waiting = {job("large", 9, 0), job("fits", 8, 1)};
  const auto decisions = by_job(snapshot);
  EXPECT_EQ(decisions.at("large").kind, DecisionKind::kWait);
  EXPECT_THAT(decisions.at("large").reason, HasSubstr("could not hold it even without other jobs"));
  EXPECT_EQ(decisions.at("fits").kind, DecisionKind::kStart);
  EXPECT_EQ(decisions.at("fits").nodes.size(), 8u);
}

TEST(Scheduler, TwoGangsThatTogetherExceedTheClusterRunOneAfterTheOther) {
  SchedulerSnapshot snapshot = cluster_of(2, 4);
  snapshot.waiting = {job("first", 6, 0, "a", 50, 100), job("second", 6, 1, "b", 50, 100)};
  const auto decisions = by_job(snapshot);
  EXPECT_EQ(decisions.at("first").kind, DecisionKind::kStart);
  EXPECT_EQ(decisions.at("second").kind, DecisionKind::kWait);
  EXPECT_EQ(decisions.at("second").place_in_queue, 1);
  EXPECT_EQ(decisions.at("second").starts_by, 100.0);
  EXPECT_EQ(decisions.at("second").reason,
            "needs 6 learners with 1 gpu each; 2 fit now; starts in 100 s at the latest");
}

TEST(Scheduler, BackfillTakesJobsThatEndBeforeTheReservation) {
  SchedulerSnapshot snapshot = cluster_of(2, 4);
  snapshot.now = 10;
  snapshot.running = {runs(job("running", 4, 0, "a", 50, 100), {"node1", "node1", "node1", "node1"})};
  snapshot.waiting = {job("head", 8, 1, "a", 50, 1000), job("short", 4, 2, "a", 50, 90), job("long", 2, 3, "a", 50, 91),
                      job("endless", 1, 4)};
  const auto decisions = by_job(snapshot);
  EXPECT_EQ(decisions.at("head").starts_by, 100.0);
  EXPECT_EQ(decisions.at("short").kind, DecisionKind::kStart);
  EXPECT_EQ(decisions.at("long").kind, DecisionKind::kWait);
  EXPECT_EQ(decisions.at("endless").kind, DecisionKind::kWait);

  snapshot.waiting[1].longest = 91;  // one second too long
  const auto later = by_job(snapshot);
  EXPECT_EQ(later.at("short").kind, DecisionKind::kWait);
  EXPECT_THAT(later.at("long").reason, HasSubstr("would keep head waiting"));
}

TEST(Scheduler, BackfillUsesWhatTheReservationLeaves) {
  SchedulerSnapshot snapshot = cluster_of(3, 4);
  snapshot.running = {runs(job("r1", 4, 0), {"node1", "node1", "node1", "node1"}),
                      runs(job("r2", 2, 1), {"node2", "node2"})};
  // The head needs two whole nodes: node3, and node1 when it is free. What node2 has is for anybody.
  snapshot.waiting = {job("head", 2, 1), job("small", 2, 2), job("one more", 1, 3)};
  snapshot.waiting[0].each = gpus(4);
  const auto decisions = by_job(snapshot);
  EXPECT_EQ(decisions.at("head").reason,
            "needs 2 learners with 4 gpu each; 1 fits now; is next, and places are kept for it as they become free");
  EXPECT_THAT(decisions.at("small").nodes, ElementsAre("node2", "node2"));
  EXPECT_EQ(decisions.at("one more").kind, DecisionKind::kWait);
}

TEST(Scheduler, WithoutBackfillNobodyPasses) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.running = {runs(job("running", 2, 0, "a", 50, 100), {"node1", "node1"})};
  snapshot.waiting = {job("head", 4, 1), job("short", 1, 2, "a", 50, 1)};
  SchedulerSettings settings;
  settings.backfill = false;
  EXPECT_EQ(by_job(snapshot, settings).at("short").kind, DecisionKind::kWait);
  EXPECT_EQ(by_job(snapshot).at("short").kind, DecisionKind::kStart);
}

TEST(Scheduler, PriorityComesFirstAndWaitingRaisesIt) {
  SchedulerSnapshot snapshot = cluster_of(1, 1);
  snapshot.now = 10'000;
  snapshot.waiting = {job("low", 1, 0, "a", 10), job("high", 1, 5000, "a", 20)};
  SchedulerSettings settings;
  settings.aging = 600;  // 5000 s are worth 8.3
  EXPECT_EQ(by_job(snapshot, settings).at("high").kind, DecisionKind::kStart);
  settings.aging = 400;  // and 12.5
  EXPECT_EQ(by_job(snapshot, settings).at("low").kind, DecisionKind::kStart);
  settings.aging = 0;
  EXPECT_EQ(by_job(snapshot, settings).at("high").kind, DecisionKind::kStart);
}

TEST(Scheduler, BorrowedCapacityIsTakenBackByItsOwner) {
  SchedulerSnapshot snapshot = cluster_of(2, 4);
  snapshot.teams = {{"a", gpus(4)}, {"b", gpus(4)}};
  snapshot.waiting = {job("a1", 4, 0, "a"), job("a2", 2, 1, "a"), job("a3", 2, 2, "a")};
  auto decisions = by_job(snapshot);
  EXPECT_FALSE(decisions.at("a1").is_borrowed);
  EXPECT_TRUE(decisions.at("a2").is_borrowed);
  EXPECT_TRUE(decisions.at("a3").is_borrowed);

  SchedulerSnapshot next = cluster_of(2, 4);
  next.teams = snapshot.teams;
  next.now = 100;
  for (const JobRequest& request : snapshot.waiting) {
    const Decision& decision = decisions.at(request.id);
    next.running.push_back(runs(request, decision.nodes, request.submitted, decision.is_borrowed));
  }
  next.waiting = {job("b1", 2, 90, "b")};
  decisions = by_job(next);
  EXPECT_EQ(decisions.at("b1").kind, DecisionKind::kStart);
  EXPECT_FALSE(decisions.at("b1").is_borrowed);
  EXPECT_THAT(decisions.at("b1").other_jobs, ElementsAre("a3"));  // the latest, and no more than is needed
  EXPECT_EQ(decisions.at("a3").kind, DecisionKind::kPreempt);
  EXPECT_THAT(decisions.at("a3").other_jobs, ElementsAre("b1"));
  EXPECT_EQ(decisions.count("a1") + decisions.count("a2"), 0u);
}

TEST(Scheduler, OwnedJobsAreNeverPreemptedForOthers) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.teams = {{"a", gpus(4)}, {"b", gpus(4)}};  // promised twice
  snapshot.running = {runs(job("a1", 4, 0, "a"), {"node1", "node1", "node1", "node1"})};
  snapshot.waiting = {job("b1", 1, 1, "b", 100)};
  EXPECT_EQ(by_job(snapshot).at("b1").kind, DecisionKind::kWait);
}

TEST(Scheduler, ASmallJobOfATeamDoesNotKeepItsLargeOneFromItsQuota) {
  SchedulerSnapshot snapshot = cluster_of(2, 4);
  snapshot.teams = {{"a", gpus(4)}, {"b", gpus(4)}};
  snapshot.running = {runs(job("a0", 1, 0, "a"), {"node1"})};
  snapshot.waiting = {job("large", 4, 1, "a"), job("small", 1, 2, "a")};
  const auto decisions = by_job(snapshot);
  // Both run, since there is room; but neither holds the quota that the large one waits for.
  EXPECT_TRUE(decisions.at("large").is_borrowed);
  EXPECT_TRUE(decisions.at("small").is_borrowed);
}

TEST(Scheduler, BorrowedJobsBecomeOwnedWhenTheQuotaHasRoom) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.teams = {{"a", gpus(2)}, {"b", gpus(2)}};
  snapshot.running = {runs(job("a1", 2, 0, "a"), {"node1", "node1"}, 5, true)};
  const auto decisions = by_job(snapshot);
  EXPECT_EQ(decisions.at("a1").kind, DecisionKind::kOwn);
}

TEST(Scheduler, WhatATeamHoldsBeyondAQuotaThatBecameSmallerIsLent) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.running = {runs(job("a1", 2, 0, "a"), {"node1", "node1"}, 5), runs(job("a2", 1, 0, "a"), {"node1"}, 6),
                      runs(job("c1", 1, 0, "c"), {"node1"}, 1)};
  snapshot.teams = {{"a", gpus(2)}, {"b", gpus(2)}};  // and nothing for c
  auto decisions = by_job(snapshot);
  EXPECT_EQ(decisions.count("a1"), 0u);
  EXPECT_EQ(decisions.at("a2").kind, DecisionKind::kLend);  // which started last
  EXPECT_EQ(decisions.at("c1").kind, DecisionKind::kLend);
  // In the same round an owner takes back what it needs of that.
  snapshot.running[1].is_borrowed = true;
  snapshot.running[2].is_borrowed = true;
  snapshot.waiting = {job("b1", 1, 10, "b")};
  decisions = by_job(snapshot);
  EXPECT_EQ(decisions.at("a2").kind, DecisionKind::kPreempt);
  EXPECT_EQ(decisions.at("a2").reason, "team b needs the places that it had lent");
  EXPECT_EQ(decisions.count("c1"), 0u);
}

TEST(Scheduler, AJobWhoseResultsAreBeingStoredKeepsItsPlaces) {
  SchedulerSnapshot snapshot = cluster_of(1, 2);
  snapshot.teams = {{"b", gpus(2)}};
  snapshot.running = {runs(job("a1", 2, 0, "a"), {"node1", "node1"}, 0, true)};
  snapshot.running[0].is_ending = true;
  snapshot.waiting = {job("b1", 2, 1, "b")};
  EXPECT_EQ(by_job(snapshot).at("b1").kind, DecisionKind::kWait);
  snapshot.nodes[0].is_draining = true;
  EXPECT_EQ(by_job(snapshot).count("a1"), 0u);
}

TEST(Scheduler, AQuotaOfWhatNoNodeHasBoundsTheRest) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.teams = {{"a", {0, 0, {{"gpu", 1}, {"tpu", 8}}}}};
  snapshot.waiting = {job("a1", 1, 0, "a"), job("a2", 1, 1, "a")};
  const auto decisions = by_job(snapshot);
  EXPECT_FALSE(decisions.at("a1").is_borrowed);
  EXPECT_TRUE(decisions.at("a2").is_borrowed);
}

TEST(Scheduler, ManyJobsOfOneTeamDoNotHideThoseOfAnother) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.teams = {{"b", gpus(4)}};
  for (int i = 0; i < 50; ++i) {
    snapshot.waiting.push_back(job("a" + std::to_string(i), 5, i, "a"));
  }
  snapshot.waiting.push_back(job("b1", 4, 100, "b"));
  SchedulerSettings settings;
  settings.depth = 10;
  EXPECT_EQ(by_job(snapshot, settings).at("b1").kind, DecisionKind::kStart);
}

TEST(Scheduler, EachTeamHasItsShareOfTheJobsThatAreLookedAt) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.teams = {{"a", gpus(1)}, {"b", gpus(4)}};
  for (int i = 0; i < 50; ++i) {
    snapshot.waiting.push_back(job("a" + std::to_string(i), 5, i, "a"));
  }
  for (int i = 0; i < 6; ++i) {
    snapshot.waiting.push_back(job("b" + std::to_string(i), i < 4 ? 5 : 1, 100 + i, "b"));
  }
  SchedulerSettings settings;
  settings.depth = 10;
  const auto decisions = by_job(snapshot, settings);
  EXPECT_EQ(decisions.at("b4").kind, DecisionKind::kStart) << "the fifth of ten by two";
  EXPECT_EQ(decisions.at("b5").kind, DecisionKind::kWait);
}

TEST(Scheduler, ReasonsNameNoJobOfAnotherTeam) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.running = {runs(job("r1", 2, 0), {"node1", "node1"})};
  snapshot.waiting = {job("head", 4, 1, "a"), job("mine", 1, 2, "a"), job("theirs", 1, 3, "b")};
  const auto decisions = by_job(snapshot);
  EXPECT_THAT(decisions.at("mine").reason, HasSubstr("would keep head waiting"));
  EXPECT_THAT(decisions.at("theirs").reason, HasSubstr("would keep a job of team a waiting"));
}

TEST(Scheduler, ReasonsTellTheQuotaInNumbers) {
  SchedulerSnapshot snapshot = cluster_of(1, 8);
  snapshot.teams = {{"vision", gpus(3)}};
  snapshot.running = {runs(job("r1", 2, 0, "vision"), {"node1", "node1"})};
  snapshot.waiting = {job("large", 4, 1, "vision"), job("next", 2, 2, "vision"), job("later", 1, 3, "vision")};
  SchedulerSettings settings;
  settings.borrow = false;
  const auto decisions = by_job(snapshot, settings);
  EXPECT_EQ(decisions.at("large").reason,
            "this takes 4 gpu, more than team vision's whole quota of 3 gpu; it may not borrow");
  EXPECT_EQ(decisions.at("next").reason,
            "team vision has 2 gpu of its quota of 3 gpu, and this takes 2 gpu; it may not borrow");
  EXPECT_EQ(decisions.at("later").reason, "earlier jobs of team vision wait for its quota; it may not borrow");
}

TEST(Scheduler, ADrainedNodeEmpties) {
  SchedulerSnapshot snapshot = cluster_of(2, 4);
  snapshot.nodes[0].is_draining = true;
  snapshot.running = {runs(job("a1", 2, 0), {"node1", "node2"}), runs(job("a2", 1, 0), {"node2"})};
  snapshot.waiting = {job("a3", 2, 1)};
  const auto decisions = by_job(snapshot);
  EXPECT_EQ(decisions.at("a1").kind, DecisionKind::kPreempt);
  EXPECT_EQ(decisions.at("a1").reason, "node1 is being emptied");
  EXPECT_THAT(decisions.at("a1").other_jobs, IsEmpty());
  EXPECT_EQ(decisions.count("a2"), 0u);
  EXPECT_THAT(decisions.at("a3").nodes, ElementsAre("node2", "node2"));
}

TEST(Scheduler, JobsOfADrainedNodeWaitAgainAlsoWhereNothingFits) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.nodes[0].is_draining = true;
  const auto scheduler = *Scheduler::create(snapshot.nodes, {}, {});
  scheduler->adopt(runs(job("a1", 2, 0), {"node1", "node1"}));
  const auto decisions = scheduler->decide(1, false);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].kind, DecisionKind::kPreempt);
  EXPECT_EQ(scheduler->running(), 0u);
  EXPECT_EQ(scheduler->waiting(), 1u);
}

TEST(Scheduler, NodesThatAreNotReadyTakeNothing) {
  SchedulerSnapshot snapshot = cluster_of(2, 4);
  snapshot.nodes[1].is_ready = false;
  snapshot.running = {runs(job("a0", 1, 0), {"node9"})};  // of a node that is not there any more
  snapshot.waiting = {job("a1", 5, 0), job("a2", 4, 1)};
  const auto decisions = by_job(snapshot);
  EXPECT_EQ(decisions.at("a1").kind, DecisionKind::kWait);
  EXPECT_EQ(decisions.at("a2").kind, DecisionKind::kStart);
}

TEST(Scheduler, PlacesOfJobsOnTheirWayOutAreGivenToThoseWhoWaitForThem) {
  SchedulerSnapshot snapshot = cluster_of(1, 4);
  snapshot.running = {runs(job("a1", 4, 0), {"node1", "node1", "node1", "node1"})};
  snapshot.running[0].is_leaving = true;
  snapshot.waiting = {job("a2", 4, 1)};
  EXPECT_EQ(by_job(snapshot).at("a2").kind, DecisionKind::kStart);
}

TEST(Scheduler, MistakesOfTheDescriptionAreRefused) {
  SchedulerSnapshot snapshot = cluster_of(2, 4);
  snapshot.nodes[1].name = "node1";
  EXPECT_THAT(schedule(snapshot, {}).error().message, HasSubstr("two nodes are named 'node1'"));
  snapshot = cluster_of(1, 1);
  snapshot.teams = {{"a", gpus(1)}, {"a", gpus(2)}};
  EXPECT_THAT(schedule(snapshot, {}).error().message, HasSubstr("team 'a' has two quotas"));
  snapshot.teams = {};
  for (int i = 0; i < 20; ++i) {
    snapshot.nodes[0].capacity.accelerators["type" + std::to_string(i)] = 1;
  }
  EXPECT_THAT(schedule(snapshot, {}).error().message, HasSubstr("at most 14"));
}

}  // namespace
}  // namespace tesser::platform
