#include "platform/job/job_state.h"

#include <array>
#include <cstddef>
#include <deque>
#include <map>

namespace tesser::platform {
namespace {

constexpr std::array<std::string_view, 10> kStates = {"QUEUED",  "PENDING",   "DEPLOYING", "DOWNLOADING", "PROCESSING",
                                                      "STORING", "COMPLETED", "FAILED",    "HALTED",      "RESUMED"};
constexpr std::array<std::string_view, 4> kWanted = {"run", "halt", "delete", "yield"};

template <typename Value, std::size_t count>
std::optional<Value> named(const std::array<std::string_view, count>& names, std::string_view name) {
  for (std::size_t i = 0; i < count; ++i) {
    if (names[i] == name) {
      return static_cast<Value>(i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(JobState state) { return kStates[static_cast<std::size_t>(state)]; }
std::optional<JobState> job_state_named(std::string_view name) { return named<JobState>(kStates, name); }
std::string_view name_of(Wanted wanted) { return kWanted[static_cast<std::size_t>(wanted)]; }
std::optional<Wanted> wanted_named(std::string_view name) { return named<Wanted>(kWanted, name); }

bool may_follow(JobState from, JobState to) {
  if (is_final(from) || from == to) {
    return false;
  }
  if (to == JobState::kFailed) {
    return true;
  }
  if (to == JobState::kHalted) {
    return from != JobState::kHalted;
  }
  switch (from) {
    case JobState::kQueued:
    case JobState::kResumed:
      return to == JobState::kPending;
    case JobState::kPending:
      return to == JobState::kDeploying || to == JobState::kQueued;
    case JobState::kDeploying:
      return to == JobState::kDownloading || to == JobState::kQueued;
    case JobState::kDownloading:
      return to == JobState::kProcessing || to == JobState::kDeploying || to == JobState::kQueued;
    case JobState::kProcessing:
      return to == JobState::kStoring || to == JobState::kDeploying || to == JobState::kQueued;
    case JobState::kStoring:
      return to == JobState::kCompleted;
    case JobState::kHalted:
      return to == JobState::kResumed;
    default:
      return false;
  }
}

bool is_final(JobState state) { return state == JobState::kCompleted || state == JobState::kFailed; }

bool waits_for_places(JobState state) { return state == JobState::kQueued || state == JobState::kResumed; }

bool holds_places(JobState state) { return !is_final(state) && !waits_for_places(state) && state != JobState::kHalted; }

std::vector<JobState> way_to(JobState from, JobState to) {
  constexpr std::array<JobState, 4> kBetween{JobState::kDeploying, JobState::kDownloading, JobState::kProcessing,
                                             JobState::kStoring};
  std::map<JobState, JobState> came_from;
  std::deque<JobState> open{from};
  while (!open.empty()) {
    const JobState at = open.front();
    open.pop_front();
    if (may_follow(at, to)) {
      std::vector<JobState> way{to};
      for (JobState each = at; each != from; each = came_from.at(each)) {
        way.insert(way.begin(), each);
      }
      return way;
    }
    for (const JobState next : kBetween) {
      if (may_follow(at, next) && next != from && !came_from.contains(next)) {
        came_from[next] = at;
        open.push_back(next);
      }
    }
  }
  return {to};
}

}  // namespace tesser::platform
