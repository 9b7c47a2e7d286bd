#include "platform/scheduler/scheduler.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "platform/scheduler/scheduler_state.h"
#include "platform/scheduler/scheduling_round.h"

namespace tesser::platform {
namespace {

class GangScheduler final : public Scheduler {
 public:
  GangScheduler(SchedulerState state, const SchedulerSettings& settings)
      : state_(std::move(state)), settings_(settings), random_(settings.placement.seed) {}

  void submit(const JobRequest& job) override { state_.submit(job); }
  void adopt(const RunningJob& job) override { state_.adopt(job); }
  void finish(const std::string& job) override { state_.finish(job); }
  std::vector<Decision> decide(Seconds now, bool explain) override {
    return SchedulingRound(state_, settings_, random_, now).decide(explain);
  }
  std::size_t waiting() const override { return state_.waiting().size(); }
  std::size_t running() const override { return state_.running(); }

 private:
  SchedulerState state_;
  SchedulerSettings settings_;
  RandomNumbers random_;
};

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::create(const std::vector<Node>& nodes,
                                                     const std::vector<TeamQuota>& teams,
                                                     const SchedulerSettings& settings) {
  std::set<std::string> names;
  for (const Node& node : nodes) {
    if (!names.insert(node.name).second) {
      return invalid_input(fmt::format("two nodes are named '{}'", node.name));
    }
  }
  names.clear();
  for (const TeamQuota& team : teams) {
    if (!names.insert(team.team).second) {
      return invalid_input(fmt::format("team '{}' has two quotas", team.team));
    }
  }
  TESSER_ASSIGN_OR_RETURN(ResourceKinds kinds, ResourceKinds::of(nodes));
  Cluster cluster(nodes, kinds);
  SchedulerState state(std::move(cluster), std::move(kinds), settings.aging);
  for (const TeamQuota& team : teams) {
    state.add_team(team);
  }
  return std::make_unique<GangScheduler>(std::move(state), settings);
}

Result<std::vector<Decision>> schedule(const SchedulerSnapshot& snapshot, const SchedulerSettings& settings,
                                       bool explain) {
  TESSER_ASSIGN_OR_RETURN(const auto scheduler, Scheduler::create(snapshot.nodes, snapshot.teams, settings));
  for (const RunningJob& job : snapshot.running) {
    scheduler->adopt(job);
  }
  for (const JobRequest& job : snapshot.waiting) {
    scheduler->submit(job);
  }
  return scheduler->decide(snapshot.now, explain);
}

}  // namespace tesser::platform
