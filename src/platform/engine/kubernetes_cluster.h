// What the engine's learners and its guardians have in common: a team's namespace and the objects in it, by way of the
// API server.
//
// One thread at a time. Calls end by their deadline; errors as in engine.h.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "platform/engine/engine.h"
#include "platform/engine/kubernetes_api.h"
#include "platform/engine/kubernetes_objects.h"
#include "platform/engine/kubernetes_status.h"

namespace tesser::platform {

inline constexpr int kApiConflict = 409;  // it is there, or not as it was
inline constexpr int kApiAbsent = 404;

// Query of the pods with this role (learner, guardian), of one job where it is named, of one attempt where given.
std::string pod_selector(const std::string& role, const std::string& job, std::optional<int> attempt = std::nullopt);

// The owner of the volume runs what works in it; where that is root, without root's powers.
Result<RunsAs> owner_of(const std::filesystem::path& volume);

// A directory of the volume that pods write into, with those above it, theirs where this process may give it away.
Result<void> make_directory(const std::filesystem::path& directory, const RunsAs& owner);

struct KubernetesCluster {
  using Nodes = std::map<std::string, KubernetesNode>;

  EngineSettings settings;
  std::unique_ptr<KubernetesApi> api;

  ApiDeadline patience() const { return std::chrono::steady_clock::now() + settings.patience; }
  std::string path_of(const std::string& team, const std::string& collection, const std::string& name = "",
                      const std::string& group = "/api/v1") const;
  std::string job_path(const std::string& team, const std::string& name = "") const {
    return path_of(team, "jobs", name, "/apis/batch/v1");
  }
  std::string policy_path(const std::string& team, const std::string& name = "") const {
    return path_of(team, "networkpolicies", name, "/apis/networking.k8s.io/v1");
  }

  // By name, also those that are not for learners.
  Result<Nodes> nodes(ApiDeadline until);
  // Makes an object, or finds that it is there.
  Result<void> make(const std::string& what, const std::string& path, const std::string& object, ApiDeadline until);
  // Makes the team's namespace, closes it to the network, and lets guardians work in it.
  Result<void> make_namespace(const std::string& team, ApiDeadline until);
  // Deletes an object; `options` is a DeleteOptions object or empty. Absent is good.
  Result<void> delete_object(const std::string& path, const std::string& options, ApiDeadline until);
  // Deletes every pod the selector finds and waits until none of them is left; `what` names them. Without `all`, only
  // those that are there when it begins.
  Result<void> delete_pods(const std::string& team, const std::string& selector, const std::string& what,
                           ApiDeadline until, bool all = true);
};

}  // namespace tesser::platform
