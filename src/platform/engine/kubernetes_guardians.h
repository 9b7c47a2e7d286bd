// Guardians as Jobs of the cluster.
#pragma once

#include <map>
#include <string>

#include "platform/engine/guardian_host.h"
#include "platform/engine/kubernetes_cluster.h"

namespace tesser::platform {

class KubernetesGuardians : public GuardianHost {
 public:
  // The cluster must outlive it.
  explicit KubernetesGuardians(KubernetesCluster& cluster) : cluster_(cluster) {}

  Result<void> start_guardian(const GuardianStart& start) override;
  Result<GuardianStatus> guardian_status(const std::string& job, const std::string& team) override;
  Result<std::map<std::string, GuardianStatus>> guardian_statuses() override;
  Result<void> restart_guardian(const std::string& job, const std::string& team) override;
  Result<void> remove_guardian(const std::string& job, const std::string& team) override;

 private:
  // From the collections of Jobs and pods that the paths name; `job` empty: of all.
  Result<std::map<std::string, GuardianStatus>> statuses(const std::string& jobs_path, const std::string& pods_path,
                                                         const std::string& job);

  KubernetesCluster& cluster_;
};

}  // namespace tesser::platform
