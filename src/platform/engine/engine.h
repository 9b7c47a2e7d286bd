// Where learners run (docs/platform.md, engines). One interface, three engines, one conformance suite.
//
// A deployment is one attempt of a job: its learners, all or none. Engines label what they start with the job and the
// attempt, and know nothing else by themselves: what is there is always asked of the system (process table, Slurm,
// Kubernetes), so an engine object may be made anew at any time, in any process, and sees the same.
//
// One thread at a time per object. Calls block for at most `patience` and then fail with what could not be reached;
// such an error says nothing about whether the change was made. Errors: kFailed when the system cannot be reached or
// refuses for now, kInvalidInput when it will never take this deployment.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/resources.h"

namespace tesser::platform {

// One learner as it is to run. Every learner of a deployment runs the same words and has its rank in TESSER_RANK. Its
// environment is what stands here and what its system needs; nothing of the engine's own process gets there unnamed.
// What the learner process itself says (not its command) goes to Volume::learner_output().
struct Deployment {
  std::string job;   // identifier, [a-z0-9-]
  std::string team;  // a namespace where the system has such
  int attempt = 0;
  std::vector<std::string> command;                // the learner process: `tesser learner --volume ... --attempt ...`
  std::map<std::string, std::string> environment;  // no secrets: they lie on the job's volume
  std::filesystem::path volume;                    // shared by all nodes
  Resources each;                                  // of one learner
  Placement nodes;  // of each rank, hence also how many there are; where a name is empty, the engine's system chooses
};
std::string to_json(const Deployment& deployment);
Result<Deployment> deployment_from_json(std::string_view text);

enum class LearnerState : std::uint8_t {
  kWaiting,  // the system has it, but it does not run yet
  kRunning,
  kEnded,  // its process has ended, whatever its code: markers on the volume say more
  kLost,   // its node does not answer, or nobody knows of it any more
};

struct LearnerStatus {
  int attempt = 0;
  int rank = 0;
  LearnerState state = LearnerState::kWaiting;
  std::string node;
  std::string reason;  // in words, of the system: "OOMKilled", "Unschedulable: ..."; may be empty
};

class GuardianHost;  // platform/engine/guardian_host.h

class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string name() const = 0;
  virtual Result<std::vector<Node>> nodes() = 0;

  // Asks the system for all learners of an attempt. Idempotent: a repeated call with the same job and attempt, also by
  // another process after the death of the first, starts nothing twice. Returns when the system has taken all of them
  // (they may still wait to run) or, after it has removed what it had made, with an error.
  virtual Result<void> deploy(const Deployment& deployment) = 0;

  // All learners that carry the job's label, of whatever attempt; those asked for and already forgotten by the system
  // are left out.
  virtual Result<std::vector<LearnerStatus>> learners(const std::string& job, const std::string& team) = 0;

  // Waits until something may have changed with the job's learners, or the time is over. May return early.
  virtual void wait(const std::string& job, const std::string& team, std::chrono::milliseconds time) = 0;

  // How long the last answer of learners() may be taken for true while wait() sees no change.
  virtual std::chrono::milliseconds good_for(const std::string& job) const {
    (void)job;
    return std::chrono::milliseconds(500);
  }

  // Ends (SIGKILL) and removes every learner with the job's label, of one attempt or of all, with everything the
  // engine made for it; and nothing that is not the job's. Returns when none is left. Idempotent.
  virtual Result<void> remove(const std::string& job, const std::string& team, std::optional<int> attempt) = 0;

  // As remove() of one attempt, which another of the same size on the same nodes is to follow at once: the engine may
  // keep for a few seconds what it holds there, and may go on listing the attempt's learners as ended. Where no
  // deployment comes it gives all back by itself, and remove() of all attempts does so at once.
  virtual Result<void> vacate(const std::string& job, const std::string& team, int attempt) {
    return remove(job, team, attempt);
  }

  // Where the engine's system looks after guardians, that part of it, which lives as long as the engine; else nullptr,
  // and the server starts guardians as processes.
  virtual GuardianHost* guardian_host() { return nullptr; }
};

// What `tesser server` was started with; travels to guardians in text (`--engine-settings FILE`).
struct EngineSettings {
  std::string kind = "local";  // local, slurm, kubernetes
  std::chrono::milliseconds patience{5000};
  // local
  std::vector<Node> nodes;                // pretend nodes; empty: one, this machine
  std::filesystem::path state_directory;  // where it remembers what it started; on this machine
  // slurm
  std::filesystem::path slurm_configuration;  // SLURM_CONF; empty: the system's
  std::string partition;                      // empty: the default one
  bool system_places = false;                 // Slurm chooses the nodes
  std::filesystem::path volumes;              // where those of jobs lie, named after them; empty: anywhere
  // kubernetes
  std::filesystem::path kubeconfig;                     // empty: the service account of this pod
  std::string image;                                    // of learners and guardians
  std::string namespace_prefix = "tesser-";             // a team's namespace is PREFIX TEAM
  std::vector<std::filesystem::path> host_directories;  // mounted read-only in pods under the same path
};

// What a learner of this size takes of its node under the engine `kind`: Slurm gives whole processors.
Resources taken_of_node(std::string_view kind, const Resources& each);

Result<std::unique_ptr<Engine>> make_engine(const EngineSettings& settings);
std::string to_json(const EngineSettings& settings);
Result<EngineSettings> engine_settings_from_json(std::string_view text);

}  // namespace tesser::platform
