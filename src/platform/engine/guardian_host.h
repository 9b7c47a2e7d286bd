// Guardians that the engine's own system starts and looks after, instead of the server (docs/platform.md, processes):
// on Kubernetes, each is a Job of the cluster. Engines without such a thing have no GuardianHost.
//
// The contract is that of engine.h: one thread at a time, calls bounded by `patience`, kFailed when the system cannot
// be reached, and nothing remembered here that the system does not know.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

struct GuardianStart {
  std::string job;
  std::string team;
  std::vector<std::string> command;                // `tesser guardian ...`
  std::map<std::string, std::string> environment;  // no secrets
  std::filesystem::path volume;                    // the job's, read and written under this path
  std::vector<std::filesystem::path> files;        // further files and directories it reads, under their own paths
};

enum class GuardianState : std::uint8_t {
  kAbsent,   // the system knows of none
  kWaiting,  // the system has it and will start it, also after a death
  kRunning,
  kEnded,  // by itself, with code 0: it is not started again
  kLost,   // its node does not answer; restart_guardian() moves it to another
};

struct GuardianStatus {
  GuardianState state = GuardianState::kAbsent;
  std::string node;
  std::string reason;  // in words, of the system; may be empty
};

class GuardianHost {
 public:
  virtual ~GuardianHost() = default;

  // Has the system keep a guardian of the job running until it ends with code 0. Idempotent while there is one; one
  // that has ended makes place for another.
  virtual Result<void> start_guardian(const GuardianStart& start) = 0;
  virtual Result<GuardianStatus> guardian_status(const std::string& job, const std::string& team) = 0;
  // Of every job in one request, by job; those absent are left out.
  virtual Result<std::map<std::string, GuardianStatus>> guardian_statuses() = 0;
  // Ends the guardian's process at once (SIGKILL), hung or not, and has the system start another. Returns when the old
  // one is gone, or its node out of reach; then the fence of its lease keeps it from acting.
  virtual Result<void> restart_guardian(const std::string& job, const std::string& team) = 0;
  // Ends it at once and for good. On Kubernetes its learners, which belong to it, go with it. Idempotent.
  virtual Result<void> remove_guardian(const std::string& job, const std::string& team) = 0;
};

}  // namespace tesser::platform
