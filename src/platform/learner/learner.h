// The process beside a job's command (docs/platform.md, processes): it waits until all learners are up, starts the
// command, keeps its log, ends it when told to, and says how it ended.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace tesser::platform {

struct LearnerOptions {
  std::filesystem::path volume;
  int attempt = 0;
  int rank = 0;
  std::filesystem::path tesser;  // this program
};

// To be called once, by a process with one thread; changes its signals, and takes orphans of the command for its own.
// Returns when exit-R.json is there, whoever wrote it. Error: it could not be written, or another process of this
// learner lives.
Result<void> run_learner(const LearnerOptions& options);

}  // namespace tesser::platform
