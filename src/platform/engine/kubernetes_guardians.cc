#include "platform/engine/kubernetes_guardians.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "platform/job/volume.h"

namespace tesser::platform {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
constexpr const char* kRole = "guardian";
// Its pods, and the learners that it owns, go after the Job.
constexpr const char* kInBackground = R"({"propagationPolicy":"Background"})";

// What a Job says without its pods.
GuardianStatus status_of_job(const Json& object) {
  GuardianStatus status{GuardianState::kWaiting, "", ""};
  if (const Json* all = json_at(object, {"status", "conditions"}); all != nullptr && all->array() != nullptr) {
    for (const Json& each : *all->array()) {
      if (string_at(each, {"status"}) == "True") {
        status.state = string_at(each, {"type"}) == "Complete" ? GuardianState::kEnded : status.state;
        status.reason = string_at(each, {"message"});
      }
    }
  }
  return status;
}

}  // namespace

Result<void> KubernetesGuardians::start_guardian(const GuardianStart& start) {
  TESSER_RETURN_IF_ERROR(check_names(cluster_.settings, start.job, start.team));
  const ApiDeadline until = cluster_.patience();
  TESSER_ASSIGN_OR_RETURN(const RunsAs runs_as, owner_of(start.volume));
  // Its container's shell writes there before the guardian itself could make the directory.
  TESSER_RETURN_IF_ERROR(make_directory(Volume(start.volume).guardian(), runs_as));
  TESSER_RETURN_IF_ERROR(cluster_.make_namespace(start.team, until));
  const std::string path = cluster_.job_path(start.team, guardian_name(start.job));
  while (true) {
    TESSER_ASSIGN_OR_RETURN(const ApiAnswer made,
                            cluster_.api->request("POST", cluster_.job_path(start.team),
                                                  guardian_job(cluster_.settings, start, runs_as), until));
    if (made.is_success()) {
      return {};
    }
    if (made.status != kApiConflict) {
      return refusal("making the guardian of job " + start.job, made);
    }
    // One that has ended, as when the job was halted, makes place for the next; one that goes has nearly gone.
    TESSER_ASSIGN_OR_RETURN(const ApiAnswer there, cluster_.api->request("GET", path, "", until));
    const bool goes = !string_at(there.body, {"metadata", "deletionTimestamp"}).empty();
    if (there.is_success() && !goes && status_of_job(there.body).state != GuardianState::kEnded) {
      return {};
    }
    if (there.is_success() && !goes) {
      TESSER_RETURN_IF_ERROR(cluster_.delete_object(path, kInBackground, until));
    }
    if (std::chrono::steady_clock::now() + kPoll >= until) {
      return failed(fmt::format("the last guardian of job {} has not gone yet", start.job));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

Result<std::map<std::string, GuardianStatus>> KubernetesGuardians::statuses(const std::string& jobs_path,
                                                                            const std::string& pods_path,
                                                                            const std::string& job) {
  const ApiDeadline until = cluster_.patience();
  TESSER_ASSIGN_OR_RETURN(const auto jobs, cluster_.api->list(jobs_path, pod_selector(kRole, job), until));
  std::map<std::string, GuardianStatus> found;
  for (const Json& object : jobs.items) {
    if (string_at(object, {"metadata", "deletionTimestamp"}).empty()) {
      found[string_at(object, {"metadata", "labels", kJobLabel})] = status_of_job(object);
    }
  }
  if (found.empty()) {
    return found;
  }
  TESSER_ASSIGN_OR_RETURN(const auto pods, cluster_.api->list(pods_path, pod_selector(kRole, job), until));
  TESSER_ASSIGN_OR_RETURN(const auto nodes, cluster_.nodes(until));
  for (const Json& pod : pods.items) {
    const auto entry = found.find(string_at(pod, {"metadata", "labels", kJobLabel}));
    if (entry == found.end() || entry->second.state == GuardianState::kEnded ||
        !string_at(pod, {"metadata", "deletionTimestamp"}).empty()) {
      continue;
    }
    GuardianStatus& status = entry->second;
    const std::string phase = string_at(pod, {"status", "phase"});
    status.node = string_at(pod, {"spec", "nodeName"});
    status.reason = reason_of(pod);
    if (phase == "Succeeded") {
      status.state = GuardianState::kEnded;
    } else if (phase == "Running") {
      // Between two starts its container waits: CrashLoopBackOff.
      status.state = status.reason.empty() ? GuardianState::kRunning : GuardianState::kWaiting;
    }
    const auto node = nodes.find(status.node);
    if (!status.node.empty() && status.state != GuardianState::kEnded && node != nodes.end() && node->second.is_lost) {
      status.state = GuardianState::kLost;
      status.reason = fmt::format("node {}: {}", status.node, node->second.node.not_ready);
    }
  }
  return found;
}

Result<GuardianStatus> KubernetesGuardians::guardian_status(const std::string& job, const std::string& team) {
  TESSER_RETURN_IF_ERROR(check_names(cluster_.settings, job, team));
  TESSER_ASSIGN_OR_RETURN(const auto found, statuses(cluster_.job_path(team), cluster_.path_of(team, "pods"), job));
  const auto entry = found.find(job);
  return entry != found.end() ? entry->second : GuardianStatus{};
}

Result<std::map<std::string, GuardianStatus>> KubernetesGuardians::guardian_statuses() {
  return statuses("/apis/batch/v1/jobs", "/api/v1/pods", "");
}

Result<void> KubernetesGuardians::restart_guardian(const std::string& job, const std::string& team) {
  TESSER_RETURN_IF_ERROR(check_names(cluster_.settings, job, team));
  // The Job makes another as soon as one goes, so only those that are there now are waited for.
  return cluster_.delete_pods(team, pod_selector(kRole, job), "the guardian of job " + job, cluster_.patience(), false);
}

Result<void> KubernetesGuardians::remove_guardian(const std::string& job, const std::string& team) {
  TESSER_RETURN_IF_ERROR(check_names(cluster_.settings, job, team));
  const ApiDeadline until = cluster_.patience();
  TESSER_RETURN_IF_ERROR(cluster_.delete_object(cluster_.job_path(team, guardian_name(job)), kInBackground, until));
  return cluster_.delete_pods(team, pod_selector(kRole, job), "the guardian of job " + job, until);
}

}  // namespace tesser::platform
