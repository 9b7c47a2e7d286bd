#include "platform/server/job_json.h"

#include <unistd.h>

#include <optional>

#include "base/json_members.h"
#include "platform/job/learner_user.h"
#include "platform/job/resources_json.h"
#include "platform/job/times.h"
#include "platform/learner/markers.h"
#include "platform/learner/metrics_reader.h"

namespace tesser::platform {
namespace {

std::string time_or_null(std::int64_t time) { return time == 0 ? "null" : json_string(time_text(time)); }

std::string learners_json(const JobRecord& job, const Volume& volume, bool looks_closer) {
  std::optional<ActingAs> learner;
  if (looks_closer) {
    learner.emplace(volume);
  }
  std::string list = "[";
  for (int rank = 0; rank < static_cast<int>(job.placement.size()); ++rank) {
    std::string node = job.placement[static_cast<std::size_t>(rank)];
    std::string state = "waiting";
    if (looks_closer && job.attempt > 0) {
      if (::access(volume.learner_exit(job.attempt, rank).c_str(), F_OK) == 0) {
        state = "ended";
      } else if (const auto up = read_learner_up(volume.learner_up(job.attempt, rank))) {
        state = "running";
        node = node.empty() ? up->node : node;
      }
    }
    list += (rank > 0 ? "," : "") + JsonMembers().add("rank", rank).add("node", node).add("state", state).object();
  }
  return list + "]";
}

std::string progress_json(const Volume& volume) {
  const ActingAs learner(volume);
  const auto progress = read_progress(volume);
  if (!progress) {
    return "null";
  }
  return JsonMembers()
      .add("step", progress->step)
      .add("steps", progress->steps)
      .add("seconds_left", progress->seconds_left)
      .object();
}

}  // namespace

std::string job_json(const JobRecord& job, const std::optional<WaitingPlaceInQueue>& waiting, const Volume& volume,
                     bool looks_closer) {
  const bool waits = waits_for_places(job.state);
  const bool is_explained = waits && waiting && !waiting->reason.empty();
  return JsonMembers()
      .add("id", job.id)
      .add("name", job.name)
      .add("description", job.description)
      .add("team", job.team)
      .add("user", job.user)
      .add("state", std::string(name_of(job.state)))
      .add("code", job.code)
      .add("reason", is_explained             ? waiting->reason
                     : !job.preempted.empty() ? job.preempted
                                              : job.reason)
      .add("wanted", std::string(name_of(job.wanted)))
      .add("priority", job.priority)
      .add("place_in_queue", waits && waiting ? waiting->place : std::int64_t{0})
      .add_text("starts_by", time_or_null(waits && waiting ? waiting->starts_by : 0))
      .add("is_borrowed", job.is_borrowed)
      .add("attempt", job.attempt)
      .add("restarts", job.restarts)
      .add("restarts_most", job.restarts_most)
      .add_text("submitted", time_or_null(job.submitted))
      .add_text("started", time_or_null(job.started))
      .add_text("ended", time_or_null(job.ended))
      .add_text("changed", time_or_null(job.changed))
      .add_text("each", resources_json(job.each))
      .add("learners_wanted", job.learners)
      .add_text("learners", learners_json(job, volume, looks_closer))
      .add_text("progress",
                looks_closer || job.state == JobState::kProcessing ? progress_json(volume) : std::string("null"))
      .object();
}

std::string change_json(const StateChange& change) {
  return JsonMembers()
      .add("time", time_text(change.time))
      .add("state", std::string(name_of(change.state)))
      .add("code", change.code)
      .add("reason", change.reason)
      .add("attempt", change.attempt)
      .object();
}

}  // namespace tesser::platform
