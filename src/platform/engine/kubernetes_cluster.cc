#include "platform/engine/kubernetes_cluster.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_members.h"
#include "platform/engine/kubernetes_marks.h"
#include "platform/web/url.h"

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPoll{50};
constexpr milliseconds kLastLook{1000};

}  // namespace

std::string pod_selector(const std::string& role, const std::string& job, std::optional<int> attempt) {
  std::string labels = fmt::format("{}={}", kRoleLabel, role);
  labels += job.empty() ? "" : fmt::format(",{}={}", kJobLabel, job);
  labels += attempt ? fmt::format(",{}={}", kAttemptLabel, *attempt) : "";
  return "labelSelector=" + url_encoded(labels);
}

Result<RunsAs> owner_of(const std::filesystem::path& volume) {
  struct stat status;
  if (::stat(volume.c_str(), &status) != 0) {
    return tl::unexpected<Error>(file_error(volume, "see who owns it", errno));
  }
  return RunsAs{status.st_uid, status.st_gid};
}

Result<void> make_directory(const std::filesystem::path& directory, const RunsAs& owner) {
  if (::mkdir(directory.c_str(), 0755) == 0) {
    if (::geteuid() == 0 && ::chown(directory.c_str(), owner.user, owner.group) != 0) {
      return tl::unexpected<Error>(file_error(directory, "give it to the owner of the volume", errno));
    }
    return {};
  }
  if (errno == ENOENT && directory.has_relative_path()) {
    TESSER_RETURN_IF_ERROR(make_directory(directory.parent_path(), owner));
    return make_directory(directory, owner);
  }
  return errno == EEXIST ? Result<void>() : tl::unexpected<Error>(file_error(directory, "make it", errno));
}

std::string KubernetesCluster::path_of(const std::string& team, const std::string& collection, const std::string& name,
                                       const std::string& group) const {
  return fmt::format("{}/namespaces/{}/{}{}{}", group, namespace_of(settings, team), collection,
                     name.empty() ? "" : "/", name);
}

Result<KubernetesCluster::Nodes> KubernetesCluster::nodes(ApiDeadline until) {
  TESSER_ASSIGN_OR_RETURN(const auto objects, api->list("/api/v1/nodes", "", until));
  Nodes all;
  for (const Json& object : objects.items) {
    KubernetesNode node = read_node(object);
    std::string name = node.node.name;
    all.emplace(std::move(name), std::move(node));
  }
  return all;
}

Result<void> KubernetesCluster::make(const std::string& what, const std::string& path, const std::string& object,
                                     ApiDeadline until) {
  TESSER_ASSIGN_OR_RETURN(const ApiAnswer answer, api->request("POST", path, object, until));
  if (answer.is_success() || answer.status == kApiConflict) {
    return {};
  }
  return refusal("making " + what, answer);
}

Result<void> KubernetesCluster::make_namespace(const std::string& team, ApiDeadline until) {
  const std::string name = namespace_of(settings, team);
  TESSER_ASSIGN_OR_RETURN(const ApiAnswer found, api->request("GET", "/api/v1/namespaces/" + name, "", until));
  if (!found.is_success()) {
    TESSER_RETURN_IF_ERROR(make("namespace " + name, "/api/v1/namespaces", namespace_object(name, team), until));
  }
  TESSER_RETURN_IF_ERROR(make("the network policy of " + name, policy_path(team), closed_policy(), until));
  if (settings.kubeconfig.empty()) {
    const std::string roles = "/apis/rbac.authorization.k8s.io/v1";
    TESSER_RETURN_IF_ERROR(
        make("the service account of " + name, path_of(team, "serviceaccounts"), guardian_account(), until));
    TESSER_RETURN_IF_ERROR(make("the role of guardians in " + name, path_of(team, "rolebindings", "", roles),
                                guardian_role_binding(name), until));
    TESSER_RETURN_IF_ERROR(make("the right of guardians in " + name + " to see nodes", roles + "/clusterrolebindings",
                                guardian_node_binding(name), until));
  }
  return {};
}

Result<void> KubernetesCluster::delete_object(const std::string& path, const std::string& options, ApiDeadline until) {
  TESSER_ASSIGN_OR_RETURN(const ApiAnswer answer, api->request("DELETE", path, options, until));
  if (answer.is_success() || answer.status == kApiAbsent || answer.status == kApiConflict) {
    return {};
  }
  return refusal("deleting " + path, answer);
}

Result<void> KubernetesCluster::delete_pods(const std::string& team, const std::string& selector,
                                            const std::string& what, ApiDeadline until, bool all) {
  std::map<std::string, bool> asked;  // by identity: whether without waiting for its node
  while (true) {
    // The last look may take a moment more, so that the answer is about pods and not about time.
    const ApiDeadline look = std::max(until, Clock::now() + kLastLook);
    TESSER_ASSIGN_OR_RETURN(auto pods, api->list(path_of(team, "pods"), selector, look));
    if (!all && !asked.empty()) {
      std::erase_if(pods.items, [&](const Json& pod) { return !asked.contains(string_at(pod, {"metadata", "uid"})); });
    }
    if (pods.items.empty()) {
      return {};
    }
    TESSER_ASSIGN_OR_RETURN(const Nodes there, nodes(look));
    AwaitedMarks marks;
    for (const Json& pod : pods.items) {
      const std::string identity = string_at(pod, {"metadata", "uid"});
      const std::string phase = string_at(pod, {"status", "phase"});
      const auto node = there.find(string_at(pod, {"spec", "nodeName"}));
      // Nothing of it runs, or its node cannot say when nothing does; a node that comes back ends it.
      const bool at_once = phase == "Succeeded" || phase == "Failed" || has_not_begun(pod) || marked_end(pod) ||
                           node == there.end() || node->second.is_lost;
      if (!at_once) {
        marks.add(pod);
      }
      const auto before = asked.find(identity);
      if (before != asked.end() && before->second >= at_once) {
        continue;
      }
      asked[identity] = at_once;
      // With one second of grace the object stays until its containers are dead; with none it goes at once.
      const std::string options = JsonMembers()
                                      .add("gracePeriodSeconds", at_once ? 0 : 1)
                                      .add_text("preconditions", JsonMembers().add("uid", identity).object())
                                      .object();
      TESSER_RETURN_IF_ERROR(delete_object(path_of(team, "pods", string_at(pod, {"metadata", "name"})), options, look));
    }
    if (Clock::now() + kPoll >= until) {
      return failed(fmt::format("{} pods of {} still end; their nodes have not said that they are gone",
                                pods.items.size(), what));
    }
    // Wakes when one of them has gone or ended, and now and then to see whether a node has been lost.
    std::string version = pods.version;
    const auto seen = api->watch(
        path_of(team, "pods"), selector, version, std::min(until, Clock::now() + milliseconds(1000)),
        [](const std::string& kind, const Json&) { return kind != "DELETED"; }, [&] { return !marks.is_any_there(); });
    if (!seen) {
      std::this_thread::sleep_for(kPoll);
    }
  }
}

}  // namespace tesser::platform
