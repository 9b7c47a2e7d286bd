// What there is to see of one attempt, and what follows from it. `look` reads markers; `verdict` decides and touches
// nothing, so that each case can be tested.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "platform/engine/engine.h"
#include "platform/guardian/journal.h"
#include "platform/guardian/reasons.h"
#include "platform/job/volume.h"
#include "platform/learner/markers.h"

namespace tesser::platform {

struct AttemptView {
  int attempt = 0;
  bool has_gone = false;
  Placement nodes;                               // of each rank; of those that the system chose, as far as it has said
  std::vector<std::optional<LearnerUp>> up;      // of each rank
  std::vector<std::optional<LearnerExit>> exit;  // of each rank
  // Of ranks without an exit marker that the engine says have ended, are lost or are unknown to it.
  std::map<int, LearnerStatus> gone;

  bool all_up() const;
  bool all_ended() const;  // by marker, or gone
};

// `statuses`: the engine's, asked for after the attempt was deployed; null when there is no answer yet. What the engine
// says is looked at before the markers are: a learner writes its marker before it ends.
AttemptView look(const Volume& volume, int attempt, const Placement& nodes, bool has_gone,
                 const std::vector<LearnerStatus>* statuses);

// Has this machine ask a shared file system anew what a directory holds: of names that were not there it may remember
// that for seconds, until it changes the directory itself. False when it cannot be changed.
bool forget_what_is_in(const std::filesystem::path& directory);

struct Verdict {
  EndCause cause = EndCause::kDone;
  Reason reason;
};
// None while the attempt goes on.
std::optional<Verdict> verdict(const Volume& volume, const AttemptView& view);

}  // namespace tesser::platform
