// What the API says about jobs (docs/platform.md, what answers hold). Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "platform/job/volume.h"
#include "platform/server/dispatcher.h"
#include "platform/store/store.h"

namespace tesser::platform {

// How far a job is stands on its volume. `looks_closer`: also what its learners have left there, where they run; and
// the progress of a job that does not run.
std::string job_json(const JobRecord& job, const std::optional<WaitingPlaceInQueue>& waiting, const Volume& volume,
                     bool looks_closer);
std::string change_json(const StateChange& change);

}  // namespace tesser::platform
