#include "platform/engine/kubernetes_engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "platform/engine/kubernetes_cluster.h"
#include "platform/engine/kubernetes_guardians.h"
#include "platform/engine/kubernetes_marks.h"
#include "platform/engine/kubernetes_objects.h"
#include "platform/job/learner_user.h"
#include "platform/job/volume.h"
#include "platform/web/url.h"

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How long wait() rests when the API server cannot be asked.
constexpr milliseconds kRest{250};

class KubernetesEngine : public Engine {
 public:
  explicit KubernetesEngine(KubernetesCluster cluster) : cluster_(std::move(cluster)) {}

  std::string name() const override { return "kubernetes"; }
  GuardianHost* guardian_host() override { return &guardians_; }

  Result<std::vector<Node>> nodes() override;
  Result<void> deploy(const Deployment& deployment) override;
  Result<std::vector<LearnerStatus>> learners(const std::string& job, const std::string& team) override;
  void wait(const std::string& job, const std::string& team, milliseconds time) override;
  Result<void> remove(const std::string& job, const std::string& team, std::optional<int> attempt) override;

 private:
  using Nodes = KubernetesCluster::Nodes;

  Result<std::optional<Owner>> guardian_of(const std::string& job, const std::string& team, ApiDeadline until);
  Result<void> check_places(const Deployment& deployment, const Nodes& nodes) const;
  Result<void> create_learners(const Deployment& deployment, const Nodes& nodes, ApiDeadline until);
  Result<void> bind_learners(const Deployment& deployment, ApiDeadline until);

  KubernetesCluster cluster_;
  KubernetesGuardians guardians_{cluster_};
  // Of a job, by team and name: where its watch goes on, which is the version of what learners() or the last watch saw,
  // and the marks of those that had not ended then.
  struct Watch {
    std::string version;
    AwaitedMarks marks;
  };
  std::map<std::string, Watch> watches_;
};

Result<std::vector<Node>> KubernetesEngine::nodes() {
  const ApiDeadline until = cluster_.patience();
  TESSER_ASSIGN_OR_RETURN(Nodes nodes, cluster_.nodes(until));
  // What others have there is not for learners.
  const std::string others = "fieldSelector=" + url_encoded("status.phase!=Succeeded,status.phase!=Failed") +
                             "&labelSelector=" + url_encoded(fmt::format("{}!=learner", kRoleLabel));
  TESSER_ASSIGN_OR_RETURN(const auto pods, cluster_.api->list("/api/v1/pods", others, until));
  for (const Json& pod : pods.items) {
    const auto found = nodes.find(string_at(pod, {"spec", "nodeName"}));
    if (found == nodes.end()) {
      continue;
    }
    Resources& capacity = found->second.node.capacity;
    const Resources taken = requested_by(pod);
    capacity.millicpus = std::max<std::int64_t>(0, capacity.millicpus - taken.millicpus);
    capacity.memory_bytes = std::max<std::int64_t>(0, capacity.memory_bytes - taken.memory_bytes);
    for (auto& [type, count] : capacity.accelerators) {
      const auto used = taken.accelerators.find(found->second.accelerators.at(type));
      count = std::max<std::int64_t>(0, count - (used != taken.accelerators.end() ? used->second : 0));
    }
  }
  std::vector<Node> result;
  for (auto& [name, node] : nodes) {
    if (node.is_for_learners) {
      result.push_back(std::move(node.node));
    }
  }
  return result;
}

Result<std::optional<Owner>> KubernetesEngine::guardian_of(const std::string& job, const std::string& team,
                                                           ApiDeadline until) {
  const std::string name = guardian_name(job);
  TESSER_ASSIGN_OR_RETURN(const ApiAnswer answer,
                          cluster_.api->request("GET", cluster_.job_path(team, name), "", until));
  if (answer.status == kApiAbsent) {
    return std::nullopt;
  }
  if (!answer.is_success()) {
    return refusal("reading job " + name, answer);
  }
  return Owner{name, string_at(answer.body, {"metadata", "uid"})};
}

Result<void> KubernetesEngine::check_places(const Deployment& deployment, const Nodes& nodes) const {
  std::map<std::string, int> learners;
  for (const std::string& node : deployment.nodes) {
    learners[node] += node.empty() ? 0 : 1;
  }
  for (const auto& entry : learners) {
    const std::string& name = entry.first;  // clang gives no structured binding to a lambda
    const auto count = entry.second;
    if (name.empty()) {
      continue;
    }
    const auto found = nodes.find(name);
    if (found == nodes.end() || !found->second.is_for_learners) {
      return invalid_input(fmt::format("the cluster has no node {} for learners", name));
    }
    const Node& node = found->second.node;
    if (!node.is_ready) {
      return failed(fmt::format("node {} is not ready: {}", name, node.not_ready));
    }
    const auto check = [&](const char* what, std::int64_t each, std::int64_t there) -> Result<void> {
      return each * count <= there ? Result<void>()
                                   : invalid_input(fmt::format("{} learners need {} {} on node {}, which has {}", count,
                                                               each * count, what, name, there));
    };
    TESSER_RETURN_IF_ERROR(check("thousandths of a cpu", deployment.each.millicpus, node.capacity.millicpus));
    TESSER_RETURN_IF_ERROR(check("bytes of memory", deployment.each.memory_bytes, node.capacity.memory_bytes));
    for (const auto& [type, each] : deployment.each.accelerators) {
      const auto there = node.capacity.accelerators.find(type);
      TESSER_RETURN_IF_ERROR(check(type.c_str(), each, there != node.capacity.accelerators.end() ? there->second : 0));
    }
  }
  return {};
}

Result<void> KubernetesEngine::create_learners(const Deployment& deployment, const Nodes& nodes, ApiDeadline until) {
  const LearnerUser user = learner_user_of(Volume(deployment.volume));
  const RunsAs runs_as{user.user, user.group};
  TESSER_ASSIGN_OR_RETURN(const auto owner, guardian_of(deployment.job, deployment.team, until));
  std::map<std::string, std::string> accelerators;
  for (const auto& [name, node] : nodes) {
    accelerators.insert(node.accelerators.begin(), node.accelerators.end());
  }
  {
    const ActingAs learner(user);  // whose directory it becomes one in
    TESSER_RETURN_IF_ERROR(make_directory(marks_directory(deployment.volume, deployment.attempt), runs_as));
  }

  const std::string policy = job_policy(deployment.job, owner);
  TESSER_ASSIGN_OR_RETURN(ApiAnswer answer,
                          cluster_.api->request("POST", cluster_.policy_path(deployment.team), policy, until));
  if (answer.status == kApiAbsent) {  // the team's first job
    TESSER_RETURN_IF_ERROR(cluster_.make_namespace(deployment.team, until));
    TESSER_ASSIGN_OR_RETURN(answer,
                            cluster_.api->request("POST", cluster_.policy_path(deployment.team), policy, until));
  }
  if (!answer.is_success() && answer.status != kApiConflict) {
    return refusal("making the network policy of job " + deployment.job, answer);
  }
  for (int rank = 0; rank < static_cast<int>(deployment.nodes.size()); ++rank) {
    TESSER_RETURN_IF_ERROR(cluster_.make(
        fmt::format("learner {} of job {}", rank, deployment.job), cluster_.path_of(deployment.team, "pods"),
        learner_pod(cluster_.settings, deployment, rank, accelerators, owner, runs_as), until));
  }
  return {};
}

Result<void> KubernetesEngine::bind_learners(const Deployment& deployment, ApiDeadline until) {
  for (int rank = 0; rank < static_cast<int>(deployment.nodes.size()); ++rank) {
    const std::string& node = deployment.nodes[static_cast<std::size_t>(rank)];
    if (node.empty()) {
      continue;
    }
    const std::string pod = learner_name(deployment.job, deployment.attempt, rank);
    const std::string path = cluster_.path_of(deployment.team, "pods", pod);
    TESSER_ASSIGN_OR_RETURN(const ApiAnswer answer,
                            cluster_.api->request("POST", path + "/binding", binding(pod, node), until));
    if (answer.is_success()) {
      continue;
    }
    const std::string what = fmt::format("learner {} of job {} on node {}", rank, deployment.job, node);
    if (answer.status != kApiConflict) {
      return refusal("binding " + what, answer);
    }
    // Bound before, by this deployment's first try.
    TESSER_ASSIGN_OR_RETURN(const ApiAnswer there, cluster_.api->request("GET", path, "", until));
    if (string_at(there.body, {"spec", "nodeName"}) != node ||
        !string_at(there.body, {"metadata", "deletionTimestamp"}).empty()) {
      return refusal("binding " + what, answer);
    }
  }
  return {};
}

Result<void> KubernetesEngine::deploy(const Deployment& deployment) {
  TESSER_RETURN_IF_ERROR(check_names(cluster_.settings, deployment.job, deployment.team));
  const ApiDeadline until = cluster_.patience();
  TESSER_ASSIGN_OR_RETURN(const Nodes nodes, cluster_.nodes(until));
  TESSER_RETURN_IF_ERROR(check_places(deployment, nodes));
  // No pod runs before all are there: what is not bound does not run.
  Result<void> outcome = create_learners(deployment, nodes, until);
  if (outcome) {
    outcome = bind_learners(deployment, until);
  }
  if (!outcome) {
    const Result<void> removed = remove(deployment.job, deployment.team, deployment.attempt);
    if (!removed) {
      return tl::unexpected<Error>(
          Error{outcome.error().code,
                outcome.error().message + "\nand what was made is not removed yet: " + removed.error().message});
    }
  }
  return outcome;
}

Result<std::vector<LearnerStatus>> KubernetesEngine::learners(const std::string& job, const std::string& team) {
  TESSER_RETURN_IF_ERROR(check_names(cluster_.settings, job, team));
  const ApiDeadline until = cluster_.patience();
  TESSER_ASSIGN_OR_RETURN(const auto pods,
                          cluster_.api->list(cluster_.path_of(team, "pods"), pod_selector("learner", job), until));
  Watch& watch = watches_[team + "/" + job];
  watch.version = pods.version;
  watch.marks.clear();
  std::vector<LearnerStatus> statuses;
  bool some_run = false;
  for (const Json& pod : pods.items) {
    if (auto status = read_learner(pod)) {
      const auto end = status->state != LearnerState::kEnded ? marked_end(pod) : std::nullopt;
      if (end) {
        status->state = LearnerState::kEnded;
        status->reason = *end;
      } else if (status->state != LearnerState::kEnded) {
        watch.marks.add(pod);
      }
      some_run = some_run || (status->state != LearnerState::kEnded && !status->node.empty());
      statuses.push_back(std::move(*status));
    }
  }
  if (!some_run) {
    return statuses;
  }
  TESSER_ASSIGN_OR_RETURN(const Nodes nodes, cluster_.nodes(until));
  for (LearnerStatus& status : statuses) {
    const auto node = nodes.find(status.node);
    if (status.state == LearnerState::kEnded || status.node.empty() || (node != nodes.end() && !node->second.is_lost)) {
      continue;
    }
    status.state = LearnerState::kLost;
    status.reason = fmt::format("node {}: {}", status.node,
                                node == nodes.end() ? "is gone from the cluster" : node->second.node.not_ready);
  }
  return statuses;
}

void KubernetesEngine::wait(const std::string& job, const std::string& team, milliseconds time) {
  const ApiDeadline until = Clock::now() + time;
  Watch& watch = watches_[team + "/" + job];
  const auto rest = [&] { std::this_thread::sleep_until(std::min(until, Clock::now() + kRest)); };
  if (watch.version.empty()) {  // learners() has not been asked yet, or could not be
    const auto pods = cluster_.api->list(cluster_.path_of(team, "pods"), pod_selector("learner", job), until);
    if (!pods) {
      rest();
      return;
    }
    watch.version = pods->version;
  }
  const Result<bool> seen = cluster_.api->watch(
      cluster_.path_of(team, "pods"), pod_selector("learner", job), watch.version, until,
      [](const std::string&, const Json&) { return false; }, [&] { return !watch.marks.is_any_there(); });
  if (!seen) {
    rest();
  } else if (!*seen) {
    watch.version.clear();  // too old: who asks learners() next sees all that happened
  }
}

Result<void> KubernetesEngine::remove(const std::string& job, const std::string& team, std::optional<int> attempt) {
  TESSER_RETURN_IF_ERROR(check_names(cluster_.settings, job, team));
  const ApiDeadline until = cluster_.patience();
  TESSER_RETURN_IF_ERROR(cluster_.delete_pods(team, pod_selector("learner", job, attempt), "job " + job, until));
  return attempt ? Result<void>() : cluster_.delete_object(cluster_.policy_path(team, policy_name(job)), "", until);
}

}  // namespace

Result<std::unique_ptr<Engine>> make_kubernetes_engine(const EngineSettings& settings) {
  if (settings.image.empty()) {
    return invalid_input("the engine kubernetes needs the image that learners and guardians run in: --image NAME");
  }
  TESSER_ASSIGN_OR_RETURN(KubernetesAccess access, settings.kubeconfig.empty() ? service_account_access()
                                                                               : read_kubeconfig(settings.kubeconfig));
  TESSER_ASSIGN_OR_RETURN(auto api, KubernetesApi::open(std::move(access)));
  return std::make_unique<KubernetesEngine>(KubernetesCluster{settings, std::move(api)});
}

}  // namespace tesser::platform
