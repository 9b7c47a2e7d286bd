// What the API says about jobs (docs/platform.md, what answers hold). Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "platform/job/volume.h"
#include "platform/server/dispatcher.h"
#include "platform/store/store.h"

namespace tesser::platform {

// `volume`: also what learners have left there: where they run, how far they are. Null: not looked at.
std::string job_json(const JobRecord& job, const std::optional<WaitingPlaceInQueue>& waiting, const Volume* volume);
std::string change_json(const StateChange& change);

}  // namespace tesser::platform
