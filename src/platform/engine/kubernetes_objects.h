// The objects of Kubernetes that the engine makes and reads: texts of pods, jobs, policies; quantities; what a pod's
// and a node's status mean. Nothing here talks to anybody.
//
// Values; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "platform/engine/engine.h"
#include "platform/engine/guardian_host.h"

namespace tesser::platform {

// Labels of all that the engine makes; `app` is "tesser".
inline constexpr const char* kJobLabel = "tesser/job";
inline constexpr const char* kTeamLabel = "tesser/team";
inline constexpr const char* kAttemptLabel = "tesser/attempt";
inline constexpr const char* kRankLabel = "tesser/rank";
inline constexpr const char* kRoleLabel = "tesser/role";  // learner or guardian

// Of learners whose nodes are given: no scheduler of the cluster takes them, the engine binds them itself.
inline constexpr const char* kOwnScheduler = "tesser";
// The service account of guardians where the server has no kubeconfig to hand on, and the role it gets
// (examples/platform/kubernetes.yaml).
inline constexpr const char* kGuardianAccount = "tesser-guardian";

std::string namespace_of(const EngineSettings& settings, const std::string& team);
std::string learner_name(const std::string& job, int attempt, int rank);
std::string guardian_name(const std::string& job);
// kInvalidInput when Kubernetes could not name objects or label them so.
Result<void> check_names(const EngineSettings& settings, const std::string& job, const std::string& team);

// The Job that a learner or policy belongs to, and goes with.
struct Owner {
  std::string name;
  std::string uid;
};
// The user that learners and guardians run as: the owner of the job's volume.
struct RunsAs {
  unsigned user = 0;
  unsigned group = 0;
};
// `accelerators`: by type, the resource that Kubernetes counts it by.
std::string learner_pod(const EngineSettings& settings, const Deployment& deployment, int rank,
                        const std::map<std::string, std::string>& accelerators, const std::optional<Owner>& owner,
                        const RunsAs& runs_as);
std::string binding(const std::string& pod, const std::string& node);
std::string guardian_job(const EngineSettings& settings, const GuardianStart& start, const RunsAs& runs_as);
std::string namespace_object(const std::string& name, const std::string& team);
// Nothing from other pods reaches a pod of the namespace...
std::string closed_policy();
// ...but what comes from pods of the same job.
std::string job_policy(const std::string& job, const std::optional<Owner>& owner);
std::string policy_name(const std::string& job);
std::string guardian_account();
// The guardian account's rights in its namespace, and to see nodes.
std::string guardian_role_binding(const std::string& name_space);
std::string guardian_node_binding(const std::string& name_space);

}  // namespace tesser::platform
