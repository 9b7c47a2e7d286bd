// Why an attempt ended, in the words of whoever submitted the job, with a code whose letter says whose fault it is
// (docs/platform.md, reasons).
//
// Values; any thread.
#pragma once

#include <string>

#include "platform/job/volume.h"
#include "platform/learner/markers.h"

namespace tesser::platform {

namespace codes {
inline constexpr const char* kCommand = "U_COMMAND";        // ended with another code than 0
inline constexpr const char* kMemory = "U_MEMORY";          // used more memory than the manifest says
inline constexpr const char* kData = "U_DATA";              // a data store cannot be read
inline constexpr const char* kResults = "U_RESULTS";        // the store for results refuses them
inline constexpr const char* kTimeLimit = "U_TIME_LIMIT";   // `time_limit`
inline constexpr const char* kDeployment = "U_DEPLOYMENT";  // the system will never take it
inline constexpr const char* kStart = "S_START";            // did not come to PROCESSING within `start_limit`
inline constexpr const char* kLearner = "S_LEARNER";        // the process of a learner ended or failed by itself
inline constexpr const char* kNode = "S_NODE";              // a node is gone
inline constexpr const char* kPreempted = "S_PREEMPTED";    // others need its places
inline constexpr const char* kEngine = "S_ENGINE";          // Slurm, Kubernetes or this machine refuses
inline constexpr const char* kVolume = "S_VOLUME";          // the job's volume cannot be written or is damaged
}  // namespace codes

struct Reason {
  std::string code;
  std::string text;
};

// "learner 1 on node2: the command ended with code 3: the last lines of its log".
Reason reason_of_exit(const Volume& volume, int attempt, const LearnerExit& exit, const std::string& node);
// The process of a learner is gone without a marker; `system_reason` is the engine's, may be empty. Has the last that
// the process said.
Reason reason_of_death(const Volume& volume, int attempt, int rank, const std::string& node,
                       const std::string& system_reason);

// The last lines of a learner's log, for a message; empty when there are none.
std::string last_lines(const Volume& volume, int rank, int attempt);

}  // namespace tesser::platform
