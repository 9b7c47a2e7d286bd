#include "platform/server/live_jobs.h"

#include <utility>

namespace tesser::platform {
namespace {

constexpr double kMicroseconds = 1e6;

bool is_queued(const JobRecord& job) { return waits_for_places(job.state) && job.wanted == Wanted::kRun; }

bool is_live(const JobRecord& job) {
  return waits_for_places(job.state) || holds_places(job.state) || job.wanted == Wanted::kDelete;
}

}  // namespace

JobRequest request_of(const JobRecord& job) {
  JobRequest request;
  request.id = job.id;
  request.team = job.team;
  request.priority = job.priority;
  request.submitted = static_cast<double>(job.state == JobState::kResumed ? job.queued : job.submitted) / kMicroseconds;
  request.learners = job.placement.empty() ? job.learners : static_cast<std::int64_t>(job.placement.size());
  request.each = job.each;
  request.longest = static_cast<double>(job.longest);
  return request;
}

bool LiveJobs::hear(const JobChange& change) {
  const auto before = jobs_.find(change.id);
  const bool is_new = before == jobs_.end();
  bool matters = false;
  if (!is_new) {
    const JobRecord& job = before->second;
    const bool held = holds_places(job.state);
    matters = !held || !change.job || !holds_places(change.job->state) || job.wanted != change.job->wanted ||
              job.preempted != change.job->preempted || job.is_borrowed != change.job->is_borrowed;
    leave(job);
    jobs_.erase(before);
  }
  if (change.job && is_live(*change.job)) {
    matters = matters || is_queued(*change.job) || is_new;
    enter(jobs_.emplace(change.id, *change.job).first->second);
  }
  return matters;
}

const JobRecord* LiveJobs::find(const std::string& id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

void LiveJobs::enter(const JobRecord& job) {
  if (is_queued(job)) {
    const QueueOrder order = queue_order(request_of(job), aging_);
    queue_.emplace(order, &job);
    team_queues_[job.team].emplace(order, &job);
  } else {
    active_.emplace(job.id, &job);
  }
}

void LiveJobs::leave(const JobRecord& job) {
  if (is_queued(job)) {
    const QueueOrder order = queue_order(request_of(job), aging_);
    queue_.erase(order);
    const auto team = team_queues_.find(job.team);
    team->second.erase(order);
    if (team->second.empty()) {
      team_queues_.erase(team);
    }
  } else {
    active_.erase(job.id);
  }
}

}  // namespace tesser::platform
