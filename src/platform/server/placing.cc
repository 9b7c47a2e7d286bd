#include "platform/server/placing.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "platform/scheduler/cluster.h"

namespace tesser::platform {
namespace {

constexpr double kMicroseconds = 1e6;

bool is_leaving(const JobRecord& job) { return job.wanted != Wanted::kRun || !job.preempted.empty(); }

SchedulerSnapshot snapshot_of(const LiveJobs& jobs, const PlacingQuestion& question, std::size_t depth) {
  SchedulerSnapshot snapshot;
  snapshot.now = static_cast<double>(question.time) / kMicroseconds;
  snapshot.nodes = question.engine.nodes;
  for (Node& node : snapshot.nodes) {
    node.is_draining = question.draining.count(node.name) != 0;
  }
  for (const auto& [team, quota] : question.quotas) {
    snapshot.teams.push_back({team, quota});
  }
  for (const auto& [id, job] : jobs.active()) {
    if (holds_places(job->state)) {
      RunningJob running{request_of(*job), static_cast<double>(job->placed) / kMicroseconds,
                         job->placement,   job->is_borrowed,
                         is_leaving(*job), job->state == JobState::kStoring};
      snapshot.running.push_back(std::move(running));
    }
  }
  // No more than the scheduler looks at: the others are behind them.
  for (const auto& [team, queue] : jobs.team_queues()) {
    std::size_t count = 0;
    for (auto job = queue.begin(); job != queue.end() && count < depth; ++job, ++count) {
      snapshot.waiting.push_back(request_of(*job->second));
    }
  }
  return snapshot;
}

// What is held in truth, by those who are leaving as well.
class HeldNodes {
 public:
  static std::optional<HeldNodes> of(const LiveJobs& jobs, const std::vector<Node>& nodes) {
    auto kinds = ResourceKinds::of(nodes);
    if (!kinds) {
      return std::nullopt;
    }
    Cluster cluster(nodes, *kinds);
    HeldNodes held(std::move(cluster), std::move(*kinds));
    for (const auto& [id, job] : jobs.active()) {
      for (const std::string& name : job->placement) {
        if (const int node = held.cluster_.node_named(name); node >= 0) {
          held.cluster_.take(node, held.kinds_.asked(job->each));
        }
      }
    }
    return held;
  }

  // All of the places, or none.
  bool take(const Placement& places, const Resources& each) {
    const Amounts amounts = kinds_.asked(each);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const int node = cluster_.node_named(places[i]);
      if (learners_that_fit(cluster_.free(node), amounts, 1) == 1) {
        cluster_.take(node, amounts);
        continue;
      }
      while (i-- > 0) {
        cluster_.give(cluster_.node_named(places[i]), amounts);
      }
      return false;
    }
    return true;
  }

 private:
  HeldNodes(Cluster cluster, ResourceKinds kinds) : cluster_(std::move(cluster)), kinds_(std::move(kinds)) {}

  Cluster cluster_;
  ResourceKinds kinds_;
};

void add_waiting(const JobRecord& job, WaitingPlaceInQueue waiting, Placing& placing) {
  placing.queue.push_back({job.id, job.team});
  waiting.place = static_cast<std::int64_t>(placing.queue.size());
  placing.waiting.emplace(job.id, std::move(waiting));
}

// Everybody waits, for one reason.
void explain_all(const LiveJobs& jobs, const std::string& reason, Placing& placing) {
  for (const auto& [order, job] : jobs.queue()) {
    add_waiting(*job, {reason, 0, 0}, placing);
  }
}

void place_by_system(const LiveJobs& jobs, const PlacingQuestion& question, Placing& placing) {
  for (const auto& [order, job] : jobs.queue()) {
    if (question.ending.count(job->id) != 0) {
      add_waiting(*job, {"waits for its guardian to end", 0, 0}, placing);
      continue;
    }
    SchedulingStep step;
    step.job = job->id;
    step.nodes = Placement(static_cast<std::size_t>(job->learners));
    placing.steps.push_back(std::move(step));
  }
}

}  // namespace

Placing find_places(const LiveJobs& jobs, const PlacingQuestion& question, const SchedulerSettings& settings) {
  Placing placing;
  if (!question.engine.has_answered || !question.engine.error.empty()) {
    placing.trouble = question.engine.error.empty() ? "waits for the engine's first answer" : question.engine.error;
    explain_all(jobs, placing.trouble, placing);
    return placing;
  }
  if (question.system_places) {
    place_by_system(jobs, question, placing);
    return placing;
  }
  const auto decisions = schedule(snapshot_of(jobs, question, settings.depth), settings, question.explains);
  if (!decisions) {
    placing.trouble = decisions.error().message;
    explain_all(jobs, placing.trouble, placing);
    return placing;
  }
  std::optional<HeldNodes> held;
  std::set<std::string> placed;
  std::unordered_map<std::string, WaitingPlaceInQueue> reasons;
  for (const Decision& decision : *decisions) {
    SchedulingStep step;
    step.job = decision.job;
    switch (decision.kind) {
      case DecisionKind::kStart: {
        const JobRecord& job = *jobs.find(decision.job);
        if (question.ending.count(job.id) != 0) {
          reasons[job.id].reason = "waits for its guardian to end";
          continue;
        }
        if (!held) {
          held = HeldNodes::of(jobs, question.engine.nodes);
        }
        if (!held || !held->take(decision.nodes, job.each)) {
          reasons[job.id].reason = "has places as soon as others have given them back, who save their work first";
          continue;
        }
        step.nodes = decision.nodes;
        step.is_borrowed = decision.is_borrowed;
        placed.insert(job.id);
        break;
      }
      case DecisionKind::kPreempt:
        step.kind = SchedulingStep::Kind::kPreempt;
        step.reason = decision.reason;
        break;
      case DecisionKind::kOwn:
        step.kind = SchedulingStep::Kind::kOwn;
        break;
      case DecisionKind::kLend:
        step.kind = SchedulingStep::Kind::kLend;
        break;
      case DecisionKind::kWait:
        reasons[decision.job] = {decision.reason, 0,
                                 static_cast<std::int64_t>(decision.starts_by.value_or(0) * kMicroseconds)};
        continue;
    }
    placing.steps.push_back(std::move(step));
  }
  for (auto entry = jobs.queue().begin(); question.explains && entry != jobs.queue().end(); ++entry) {
    const JobRecord& job = *entry->second;
    if (placed.count(job.id) != 0) {
      continue;
    }
    const auto known = reasons.find(job.id);
    if (known != reasons.end()) {
      add_waiting(job, std::move(known->second), placing);
    } else {
      add_waiting(job, {fmt::format("{} jobs are before it in the queue", placing.queue.size()), 0, 0}, placing);
    }
  }
  return placing;
}

}  // namespace tesser::platform
