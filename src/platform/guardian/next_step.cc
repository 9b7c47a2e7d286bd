#include "platform/guardian/next_step.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

NextStep move_to(JobState state, Reason reason = {}) { return {NextStep::Kind::kMove, state, std::move(reason)}; }

NextStep no_more_restarts(const JournalRecord& end, const Manifest& manifest) {
  return move_to(
      JobState::kFailed,
      {end.code, manifest.restarts == 0 ? end.reason
                                        : fmt::format("{} (after {} restarts, as many as the manifest allows)",
                                                      end.reason, manifest.restarts)});
}

NextStep deploy(const JournalSummary& journal, const std::optional<JournalRecord>& end, const Manifest& manifest) {
  NextStep step;
  if (end && end->cause == EndCause::kRestart) {
    step.reason = {end->code, fmt::format("restart {} of {}: {}", journal.restarts, manifest.restarts, end->reason)};
  } else if (end && end->cause == EndCause::kRollback) {
    step.reason = {end->code, fmt::format("starting again: {}", end->reason)};
    step.rests = true;
  }
  return step;
}

}  // namespace

NextStep next_step(const JournalSummary& journal, bool has_new_places, Wanted wanted, const Manifest& manifest,
                   std::int64_t time) {
  const std::optional<JournalRecord> last = journal.last ? journal.last->end : std::optional<JournalRecord>();
  const std::optional<JournalRecord> end = has_new_places ? std::nullopt : last;
  const std::optional<EndCause> cause = end ? std::optional(end->cause) : std::nullopt;
  if (cause == EndCause::kFail) {
    return move_to(JobState::kFailed, {end->code, end->reason});
  }
  if (cause == EndCause::kHalt || cause == EndCause::kDelete) {
    return move_to(JobState::kHalted, {"", end->reason});
  }
  // A job whose commands are done does not yield: it has no learners any more, and its places are free soon.
  const bool is_done = last && last->cause == EndCause::kDone;
  if (is_done && journal.has_stored) {
    return move_to(JobState::kCompleted);
  }
  if (is_owners(wanted)) {
    return move_to(JobState::kHalted, {"", wish_text(wanted)});
  }
  if (is_done) {
    return {NextStep::Kind::kStore};
  }
  if ((cause == EndCause::kRestart || cause == EndCause::kRequeue) && journal.restarts > manifest.restarts) {
    return no_more_restarts(*end, manifest);
  }
  if (wanted == Wanted::kYield || cause == EndCause::kYield) {
    return move_to(JobState::kQueued, {codes::kPreempted, wish_text(Wanted::kYield)});
  }
  if (cause == EndCause::kRequeue) {
    return move_to(JobState::kQueued, {end->code, end->reason});
  }
  if (const auto late = too_late_to_start(journal, manifest, time)) {
    return move_to(JobState::kFailed, {codes::kStart, end ? fmt::format("{}: {}", *late, end->reason) : *late});
  }
  return deploy(journal, end, manifest);
}

std::optional<std::string> too_late_to_start(const JournalSummary& journal, const Manifest& manifest,
                                             std::int64_t time) {
  if (!journal.starting_since ||
      std::chrono::microseconds(time - *journal.starting_since) < std::chrono::microseconds(manifest.start_limit)) {
    return std::nullopt;
  }
  return fmt::format("the job did not start within its start limit of {} s", manifest.start_limit.count());
}

bool is_owners(Wanted wanted) { return wanted == Wanted::kHalt || wanted == Wanted::kDelete; }

std::string wish_text(Wanted wanted) {
  return wanted == Wanted::kDelete  ? "deleted by its owner"
         : wanted == Wanted::kYield ? "its places are needed"
                                    : "halted by its owner";
}

}  // namespace tesser::platform
