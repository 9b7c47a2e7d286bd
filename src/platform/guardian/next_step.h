// What a guardian does when no attempt of its job runs: decided from the journal alone, so that a successor decides
// the same, and so that each case can be tested.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/guardian/journal.h"
#include "platform/guardian/reasons.h"
#include "platform/job/job_state.h"
#include "platform/job/manifest.h"

namespace tesser::platform {

struct NextStep {
  enum class Kind : std::uint8_t {
    kMove,    // to `state`, with `reason`
    kStore,   // results
    kDeploy,  // another attempt, with `reason` for why again
  };
  Kind kind = Kind::kDeploy;
  JobState state = JobState::kQueued;
  Reason reason = {};
  bool rests = false;  // before it is deployed: the attempt before could not begin
};

// `has_new_places`: the job was reported as halted or queued and has got places since; `time`: now, in microseconds
// since 1970.
NextStep next_step(const JournalSummary& journal, bool has_new_places, Wanted wanted, const Manifest& manifest,
                   std::int64_t time);

// Why a job that does not run yet will not be tried again: its start limit is over; nothing before that.
std::optional<std::string> too_late_to_start(const JournalSummary& journal, const Manifest& manifest,
                                             std::int64_t time);

bool is_owners(Wanted wanted);  // and not the server's
// "halted by its owner"
std::string wish_text(Wanted wanted);

}  // namespace tesser::platform
