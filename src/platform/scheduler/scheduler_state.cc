#include "platform/scheduler/scheduler_state.h"

#include "base/check.h"

namespace tesser::platform {

bool ScheduledTeam::fits_beside(const Amounts& held, const ScheduledJob& job) const {
  for (std::size_t kind = 0; kind < kMostKinds; ++kind) {
    if (job.total[kind] > 0 && held[kind] + job.total[kind] > quota[kind]) {
      return false;
    }
  }
  return true;
}

bool ScheduledTeam::is_over_quota() const {
  for (std::size_t kind = 0; kind < kMostKinds; ++kind) {
    if (owned[kind] > quota[kind]) {
      return true;
    }
  }
  return false;
}

QueueOrder queue_order(const JobRequest& job, Seconds aging) {
  const double priority = job.priority - (aging > 0 ? job.submitted / aging : 0.0);
  return {-priority, job.submitted, job.id};
}

void SchedulerState::add_team(const TeamQuota& quota) {
  team_numbers_.emplace(quota.team, teams_.size());
  teams_.push_back({quota.team, kinds_.bounded(quota.quota), {}});
  has_quotas_ = true;
}

void SchedulerState::adopt(const RunningJob& running) {
  if (running.is_leaving) {
    return;
  }
  RunningGang entry{job_of(running.job), running.started, {}, running.is_borrowed, running.is_ending};
  for (const std::string& name : running.nodes) {
    entry.nodes.push_back(cluster_.node_named(name));
  }
  start(std::move(entry));
}

void SchedulerState::finish(const std::string& id) {
  if (orders_.count(id) != 0) {
    dequeue(id);
  } else if (const auto running = running_.find(id); running != running_.end()) {
    give_places(running->second);
    forget(id);
  }
}

void SchedulerState::start(RunningGang running) {
  take_places(running);
  if (!running.is_borrowed) {
    teams_[running.job.team].owned += running.job.total;
  }
  const std::string id = running.job.request.id;
  const auto [entry, is_new] = running_.emplace(id, std::move(running));
  TESSER_CHECK(is_new, "job " + id + " runs twice");
  ends_.emplace(std::pair(entry->second.end(), id), &entry->second);
  if (entry->second.is_borrowed && !entry->second.is_ending) {
    borrowed_.insert(borrowed_key(entry->second));
  }
}

void SchedulerState::enqueue(ScheduledJob job) {
  const JobRequest& request = job.request;
  const Order order = queue_order(request, aging_);
  const bool is_new = orders_.emplace(request.id, order).second && running_.count(request.id) == 0;
  TESSER_CHECK(is_new, "job " + request.id + " twice");
  waiting_gangs_[job.gang.each].insert(job.gang.learners);
  const ScheduledJob& kept = waiting_.emplace(order, std::move(job)).first->second;
  waiting_of_teams_.resize(teams_.size());
  waiting_of_teams_[kept.team].emplace(order, &kept);
}

void SchedulerState::dequeue(const std::string& id) {
  const auto order = orders_.find(id);
  const auto job = waiting_.find(order->second);
  const auto gangs = waiting_gangs_.find(job->second.gang.each);
  gangs->second.erase(gangs->second.find(job->second.gang.learners));
  if (gangs->second.empty()) {
    waiting_gangs_.erase(gangs);
  }
  waiting_of_teams_[job->second.team].erase(order->second);
  waiting_.erase(job);
  orders_.erase(order);
}

void SchedulerState::preempt(const std::string& id) {
  RunningGang& running = running_.at(id);
  give_places(running);
  running.nodes.clear();
  if (running.is_borrowed) {
    borrowed_.erase(borrowed_key(running));
  } else {
    teams_[running.job.team].owned -= running.job.total;
    running.is_borrowed = true;  // holds nothing of the quota
  }
}

void SchedulerState::queue_again(const std::string& id) {
  ScheduledJob job = running_.at(id).job;
  forget(id);
  enqueue(std::move(job));
}

void SchedulerState::own(const std::string& id) {
  RunningGang& running = running_.at(id);
  borrowed_.erase(borrowed_key(running));
  running.is_borrowed = false;
  teams_[running.job.team].owned += running.job.total;
}

void SchedulerState::lend(const std::string& id) {
  RunningGang& running = running_.at(id);
  teams_[running.job.team].owned -= running.job.total;
  running.is_borrowed = true;
  if (!running.is_ending) {
    borrowed_.insert(borrowed_key(running));
  }
}

void SchedulerState::give_places(const RunningGang& running) {
  for (const int node : running.nodes) {
    if (node >= 0) {
      cluster_.give(node, running.job.gang.each);
    }
  }
}

void SchedulerState::take_places(const RunningGang& running) {
  for (const int node : running.nodes) {
    if (node >= 0) {
      cluster_.take(node, running.job.gang.each);
    }
  }
}

ScheduledJob SchedulerState::job_of(const JobRequest& request) {
  ScheduledJob job;
  job.request = request;
  job.gang = {request.learners, kinds_.asked(request.each)};
  job.total = job.gang.each * request.learners;
  const auto [team, is_new] = team_numbers_.emplace(request.team, teams_.size());
  if (is_new) {  // without a quota: nothing of its own where others have one
    ScheduledTeam unknown{request.team, {}, {}};
    if (!has_quotas_) {
      unknown.quota = kinds_.bounded({0, 0, {}});
    }
    teams_.push_back(unknown);
  }
  job.team = team->second;
  job.size = sizes_.emplace(job.gang.each, sizes_.size()).first->second;
  return job;
}

// Gives quota back.
void SchedulerState::forget(const std::string& id) {
  const auto running = running_.find(id);
  RunningGang& entry = running->second;
  if (entry.is_borrowed) {
    borrowed_.erase(borrowed_key(entry));
  } else {
    teams_[entry.job.team].owned -= entry.job.total;
  }
  ends_.erase(std::pair(entry.end(), id));
  running_.erase(running);
}

}  // namespace tesser::platform
