// Random clusters, teams and jobs: whatever comes, no rule of the scheduler is broken and every job runs to its end.
#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "platform/scheduler/scheduler.h"

namespace tesser::platform {
namespace {

struct Known {
  JobRequest request;
  double left = 0;
  bool runs = false;
  bool is_borrowed = false;
  double since = 0;
  std::uint64_t run = 0;
  Placement nodes;
  double promised = -1;  // starts by then at the latest
};

struct World {
  explicit World(std::uint64_t seed, bool has_teams) : random(seed), has_teams(has_teams) {
    const std::int64_t count = 1 + pick(8);
    for (std::int64_t i = 0; i < count; ++i) {
      Node node;
      node.name = "node" + std::to_string(i);
      node.capacity = {1000 * (1 + pick(8)), (1 + pick(8)) << 30, {{"gpu", 1 + pick(8)}}};
      if (pick(3) == 0) {
        node.capacity.accelerators["old"] = 1 + pick(4);
      }
      nodes.push_back(node);
    }
    for (int i = 0; has_teams && i < 3; ++i) {
      teams.push_back({"team" + std::to_string(i), {0, 0, {{"gpu", 1 + pick(12)}}}});
    }
    settings.placement.policy = pick(2) == 0 ? PlacementPolicy::kPack : PlacementPolicy::kSpread;
    settings.placement.seed = seed;
    settings.backfill = pick(5) != 0;
    settings.aging = has_teams ? 100 : 0;
  }
  std::int64_t pick(std::int64_t below) {
    return static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(below));
  }

  JobRequest request(int number, double now) {
    JobRequest job;
    job.id = "job" + std::to_string(number);
    job.team = has_teams ? "team" + std::to_string(pick(4)) : "";  // the fourth has no quota
    job.priority = has_teams ? static_cast<int>(pick(3)) : 50;
    job.submitted = now;
    job.each = {500 * pick(4), pick(3) << 29, {{"gpu", pick(3)}}};
    if (pick(6) == 0) {
      job.each.accelerators["old"] = 1;
    }
    // Of those that fit into an empty cluster; one learner at least fits by how the loop ends.
    for (;;) {
      std::int64_t room = 0;
      for (const Node& node : nodes) {
        room += fits(node.capacity, job.each);
      }
      if (room > 0) {
        job.learners = 1 + pick(std::min<std::int64_t>(room, 12));
        return job;
      }
      job.each = {500, 0, {{"gpu", 1}}};
    }
  }
  static std::int64_t fits(const Resources& free, const Resources& each) {
    std::int64_t most = 12;
    if (each.millicpus > 0) most = std::min(most, free.millicpus / each.millicpus);
    if (each.memory_bytes > 0) most = std::min(most, free.memory_bytes / each.memory_bytes);
    for (const auto& [type, count] : each.accelerators) {
      const auto found = free.accelerators.find(type);
      if (count > 0) most = std::min(most, (found == free.accelerators.end() ? 0 : found->second) / count);
    }
    return most;
  }

  RandomNumbers random;
  bool has_teams;
  std::vector<Node> nodes;
  std::vector<TeamQuota> teams;
  SchedulerSettings settings;
};

void check_nothing_is_held_twice(const World& world, const std::map<std::string, Known>& jobs) {
  std::map<std::string, Resources> held;
  for (const Node& node : world.nodes) {
    held[node.name].millicpus = 0;
  }
  std::map<std::string, std::int64_t> owned;
  for (const auto& [id, job] : jobs) {
    if (!job.runs) {
      continue;
    }
    ASSERT_EQ(static_cast<std::int64_t>(job.nodes.size()), job.request.learners) << id;
    for (const std::string& node : job.nodes) {
      held[node].millicpus += job.request.each.millicpus;
      held[node].memory_bytes += job.request.each.memory_bytes;
      for (const auto& [type, count] : job.request.each.accelerators) {
        held[node].accelerators[type] += count;
      }
    }
    const auto gpu = job.request.each.accelerators.find("gpu");
    if (!job.is_borrowed && gpu != job.request.each.accelerators.end()) {
      owned[job.request.team] += gpu->second * job.request.learners;
    }
  }
  for (const Node& node : world.nodes) {
    Resources& used = held[node.name];
    EXPECT_LE(used.millicpus, node.capacity.millicpus) << node.name;
    EXPECT_LE(used.memory_bytes, node.capacity.memory_bytes) << node.name;
    for (const auto& [type, count] : used.accelerators) {
      const auto has = node.capacity.accelerators.find(type);
      EXPECT_LE(count, has == node.capacity.accelerators.end() ? 0 : has->second) << node.name << " " << type;
    }
  }
  for (const TeamQuota& team : world.teams) {
    EXPECT_LE(owned[team.team], team.quota.accelerators.at("gpu")) << team.team;
  }
}

void run_world(std::uint64_t seed, bool has_teams) {
  World world(seed, has_teams);
  auto scheduler = *Scheduler::create(world.nodes, world.teams, world.settings);
  std::map<std::string, Known> jobs;
  using End = std::tuple<double, std::string, std::uint64_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  double now = 0;
  const int count = 120;
  int submitted = 0;
  std::size_t finished = 0;
  int rounds = 0;
  while (finished < static_cast<std::size_t>(count)) {
    ASSERT_LT(++rounds, 20'000) << "jobs go round in circles";
    const double next_submit = submitted < count ? now + static_cast<double>(world.pick(40)) : 1e18;
    if (submitted < count && (ends.empty() || next_submit <= std::get<0>(ends.top()))) {
      now = next_submit;
      Known job;
      job.request = world.request(submitted++, now);
      job.left = 1 + static_cast<double>(world.pick(200));
      // Some end earlier than they might, and of some nobody knows.
      job.request.longest = world.pick(4) == 0 ? 0 : job.left + static_cast<double>(world.pick(50));
      scheduler->submit(job.request);
      jobs.emplace(job.request.id, job);
    } else {
      ASSERT_FALSE(ends.empty()) << "nothing runs, and " << scheduler->waiting() << " jobs wait for ever";
      const auto [time, id, run] = ends.top();
      ends.pop();
      Known& job = jobs.at(id);
      if (!job.runs || job.run != run) {
        continue;
      }
      now = time;
      job.runs = false;
      ++finished;
      scheduler->finish(id);
    }
    const bool explains = world.pick(2) == 0;
    for (const Decision& decision : scheduler->decide(now, explains)) {
      Known& job = jobs.at(decision.job);
      switch (decision.kind) {
        case DecisionKind::kPreempt:
          ASSERT_TRUE(job.runs && job.is_borrowed) << decision.job;
          job.runs = false;
          job.left -= std::min(job.left - 0.5, now - job.since);
          break;
        case DecisionKind::kStart:
          ASSERT_FALSE(job.runs) << decision.job;
          ASSERT_TRUE(decision.other_jobs.empty() || !decision.is_borrowed) << decision.job;
          if (job.promised >= 0) {
            EXPECT_LE(now, job.promised) << decision.job << " was delayed";
          }
          job.runs = true;
          job.is_borrowed = decision.is_borrowed;
          job.nodes = decision.nodes;
          job.since = now;
          ends.emplace(now + job.left, decision.job, ++job.run);
          break;
        case DecisionKind::kOwn:
          ASSERT_TRUE(job.runs && job.is_borrowed) << decision.job;
          job.is_borrowed = false;
          break;
        case DecisionKind::kLend:
          ADD_FAILURE() << decision.job << ": no quota has become smaller";
          break;
        case DecisionKind::kWait:
          EXPECT_FALSE(job.runs) << decision.job;
          EXPECT_FALSE(decision.reason.empty()) << decision.job;
          // Promises hold where neither teams nor priorities let others come before.
          if (decision.starts_by && !has_teams && job.promised < 0) {
            job.promised = *decision.starts_by;
          }
          break;
      }
    }
    check_nothing_is_held_twice(world, jobs);
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

class RandomWorlds : public ::testing::TestWithParam<int> {};

TEST_P(RandomWorlds, WithTeamsEveryJobEndsAndNoQuotaIsBroken) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  run_world(static_cast<std::uint64_t>(GetParam()), true);
}

TEST_P(RandomWorlds, WithoutTeamsReservationsAreKept) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  run_world(static_cast<std::uint64_t>(GetParam()), false);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomWorlds, ::testing::Range(1, 61));

}  // namespace
}  // namespace tesser::platform
