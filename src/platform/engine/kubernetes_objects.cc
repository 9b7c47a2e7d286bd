#include "platform/engine/kubernetes_objects.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/json_members.h"
#include "platform/engine/kubernetes_marks.h"
#include "platform/engine/kubernetes_status.h"
#include "platform/job/learner_user.h"
#include "platform/job/volume.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kLongestLabel = 63;
constexpr const char* kGuardianRole = "tesser-guardian";
constexpr const char* kNodeReaderRole = "tesser-nodes";
constexpr const char* kAccountDirectory = "/var/run/secrets/kubernetes.io/serviceaccount";
// Kubernetes puts the values of variables for "$(NAME)" in commands and environments; "$$" is a plain "$".
std::string literal(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    escaped += letter == '$' ? "$$" : std::string(1, letter);
  }
  return escaped;
}

std::string literal_list(const std::vector<std::string>& words) {
  return json_list(words, [](const std::string& word) { return json_string(literal(word)); });
}

// The first process of a container, so that signals reach the command and its orphans are waited for. What the command
// itself says goes to the file "$0". When it and all that it has left behind are gone, that is marked in the directory
// "$1" (kubernetes_marks.h): a kubelet looks once a second.
constexpr const char* kLearnerShell = R"(trap 'kill -TERM "$child"' TERM
mark="$1/ended-$TESSER_POD"; shift; unset TESSER_POD
"$@" >> "$0" 2>&1 < /dev/null & child=$!
while :; do wait "$child"; code=$?; kill -0 "$child" 2> /dev/null || break; done
if [ $$ = 1 ]; then while kill -KILL -1 2> /dev/null; do sleep 0.01; done; fi
kills=0
for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
[ -r "$file" ] && while read -r name count; do [ "$name" != oom_kill ] || kills=$count; done < "$file"
done
echo "$code $kills" > "$mark.new" && mv "$mark.new" "$mark"
exit "$code")";

// What makes a pod one and no other, also of those that have had its name.
constexpr const char* kPodVariable = R"({"name":"TESSER_POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.uid"}}})";

// Starts a guardian that was killed at once, where Kubernetes would wait longer each time; after a few deaths it is
// Kubernetes' turn. Nothing is lost when a guardian is killed, so it gets no time to end.
constexpr const char* kGuardianShell = R"(trap 'kill -KILL "$child"; exit 143' TERM
for start in 1 2 3 4 5 6 7 8 9 10; do
"$@" >> "$0" 2>&1 < /dev/null & child=$!
while :; do wait "$child"; code=$?; kill -0 "$child" 2> /dev/null || break; done
case $code in 0|2) exit "$code";; esac
sleep 0.2
done
exit "$code")";

std::string labels(std::initializer_list<std::pair<std::string, std::string>> more) {
  JsonMembers members;
  members.add("app", std::string("tesser"));
  for (const auto& [name, value] : more) {
    members.add(name, value);
  }
  return members.object();
}

std::string owner_references(const std::optional<Owner>& owner) {
  if (!owner) {
    return "[]";
  }
  return "[" +
         JsonMembers()
             .add("apiVersion", std::string("batch/v1"))
             .add("kind", std::string("Job"))
             .add("name", owner->name)
             .add("uid", owner->uid)
             .add("blockOwnerDeletion", false)
             .object() +
         "]";
}

// `more`: an entry that is JSON already.
std::string environment_text(const std::map<std::string, std::string>& environment, const std::string& more = "") {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) {
    entries.push_back(JsonMembers().add("name", name).add("value", literal(value)).object());
  }
  if (!more.empty()) {
    entries.push_back(more);
  }
  return json_list(entries, [](const std::string& entry) { return entry; });
}

// Directories of the node under their own paths, and shared memory, of which containers get very little by themselves.
class Mounts {
 public:
  Mounts() {
    volumes_.push_back(R"({"name":"shm","emptyDir":{"medium":"Memory"}})");
    mounts_.push_back(R"({"name":"shm","mountPath":"/dev/shm"})");
  }
  void host(const std::filesystem::path& path, bool is_read_only) {
    if (path.empty() || !seen_.insert(path).second) {
      return;
    }
    const std::string name = fmt::format("host-{}", volumes_.size());
    volumes_.push_back(JsonMembers()
                           .add("name", name)
                           .add_text("hostPath", JsonMembers().add("path", path.string()).object())
                           .object());
    mounts_.push_back(
        JsonMembers().add("name", name).add("mountPath", path.string()).add("readOnly", is_read_only).object());
  }
  // The token by which a guardian speaks to the API server.
  void account() {
    volumes_.push_back(R"({"name":"account","projected":{"sources":[{"serviceAccountToken":{"path":"token"}},)"
                       R"({"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}]}})");
    mounts_.push_back(JsonMembers()
                          .add("name", std::string("account"))
                          .add("mountPath", std::string(kAccountDirectory))
                          .add("readOnly", true)
                          .object());
  }
  std::string volumes() const { return joined(volumes_); }
  std::string mounts() const { return joined(mounts_); }

 private:
  static std::string joined(const std::vector<std::string>& texts) {
    return json_list(texts, [](const std::string& text) { return text; });
  }
  std::vector<std::string> volumes_;
  std::vector<std::string> mounts_;
  std::set<std::filesystem::path> seen_;
};

std::string security_of_pod(const RunsAs& runs_as) {
  return JsonMembers()
      .add("runAsUser", static_cast<std::int64_t>(runs_as.user))
      .add("runAsGroup", static_cast<std::int64_t>(runs_as.group))
      .add_text("seccompProfile", R"({"type":"RuntimeDefault"})")
      .object();
}

std::string container(const std::string& name, const EngineSettings& settings, const std::string& command,
                      const std::string& environment, const std::filesystem::path& volume, const std::string& resources,
                      const Mounts& mounts, const std::string& powers = "[]") {
  return JsonMembers()
      .add("name", name)
      .add("image", settings.image)
      .add("imagePullPolicy", std::string("IfNotPresent"))
      .add_text("command", command)
      .add_text("env", environment)
      .add("workingDir", volume.string())
      .add_text("resources", resources)
      .add_text("volumeMounts", mounts.mounts())
      .add_text("securityContext",
                R"({"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"],"add":)" + powers + "}}")
      .object();
}

std::string resources_text(const Resources& each, const std::map<std::string, std::string>& accelerators) {
  JsonMembers amounts;
  amounts.add("cpu", fmt::format("{}m", each.millicpus));
  if (each.memory_bytes > 0) {
    amounts.add("memory", std::to_string(each.memory_bytes));
  }
  for (const auto& [type, count] : each.accelerators) {
    if (const auto found = accelerators.find(type); found != accelerators.end() && count > 0) {
      amounts.add(found->second, std::to_string(count));
    }
  }
  return JsonMembers().add_text("requests", amounts.object()).add_text("limits", amounts.object()).object();
}

std::string tolerations() {
  std::vector<std::string> all;
  for (const std::string_view key : kToleratedTaints) {
    all.push_back(JsonMembers().add("key", std::string(key)).add("operator", std::string("Exists")).object());
  }
  return json_list(all, [](const std::string& text) { return text; });
}

bool is_dns_label(const std::string& text) {
  return !text.empty() && text.size() <= kLongestLabel && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(), [](char letter) {
           return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '-';
         });
}

}  // namespace

std::string namespace_of(const EngineSettings& settings, const std::string& team) {
  return settings.namespace_prefix + team;
}
std::string learner_name(const std::string& job, int attempt, int rank) {
  return fmt::format("{}-{}-{}", job, attempt, rank);
}
std::string guardian_name(const std::string& job) { return "guardian-" + job; }
std::string policy_name(const std::string& job) { return "job-" + job; }

Result<void> check_names(const EngineSettings& settings, const std::string& job, const std::string& team) {
  if (const std::string name = namespace_of(settings, team); !is_dns_label(name)) {
    return invalid_input(
        fmt::format("team '{}' can have no namespace on Kubernetes: '{}' may have up to {} of a-z, 0-9 and -", team,
                    name, kLongestLabel));
  }
  if (const std::string name = guardian_name(job); !is_dns_label(name)) {
    return invalid_input(fmt::format(
        "job '{}' can have no name on Kubernetes: '{}' may have up to {} of a-z, 0-9 and -", job, name, kLongestLabel));
  }
  return {};
}

std::string learner_pod(const EngineSettings& settings, const Deployment& deployment, int rank,
                        const std::map<std::string, std::string>& accelerators, const std::optional<Owner>& owner,
                        const RunsAs& runs_as) {
  Mounts mounts;
  mounts.host(deployment.volume, false);
  for (const auto& directory : settings.host_directories) {
    mounts.host(directory, true);
  }
  std::vector<std::string> command{"/bin/sh", "-c", kLearnerShell,
                                   Volume(deployment.volume).learner_output(deployment.attempt, rank).string(),
                                   marks_directory(deployment.volume, deployment.attempt).string()};
  command.insert(command.end(), deployment.command.begin(), deployment.command.end());
  std::map<std::string, std::string> environment = deployment.environment;
  environment["TESSER_RANK"] = std::to_string(rank);
  const bool is_placed = !deployment.nodes[static_cast<std::size_t>(rank)].empty();

  const std::string specification =
      JsonMembers()
          .add("restartPolicy", std::string("Never"))
          .add("schedulerName", std::string(is_placed ? kOwnScheduler : "default-scheduler"))
          .add("automountServiceAccountToken", false)
          .add("enableServiceLinks", false)
          .add_text("securityContext", security_of_pod(runs_as))
          .add_text("tolerations", tolerations())
          .add_text("containers", "[" +
                                      container("learner", settings, literal_list(command),
                                                environment_text(environment, kPodVariable), deployment.volume,
                                                resources_text(deployment.each, accelerators), mounts) +
                                      "]")
          .add_text("volumes", mounts.volumes())
          .object();
  return JsonMembers()
      .add("apiVersion", std::string("v1"))
      .add("kind", std::string("Pod"))
      .add_text("metadata", JsonMembers()
                                .add("name", learner_name(deployment.job, deployment.attempt, rank))
                                .add_text("labels", labels({{kRoleLabel, "learner"},
                                                            {kJobLabel, deployment.job},
                                                            {kTeamLabel, deployment.team},
                                                            {kAttemptLabel, std::to_string(deployment.attempt)},
                                                            {kRankLabel, std::to_string(rank)}}))
                                .add_text("ownerReferences", owner_references(owner))
                                .object())
      .add_text("spec", specification)
      .object();
}

std::string binding(const std::string& pod, const std::string& node) {
  return JsonMembers()
      .add("apiVersion", std::string("v1"))
      .add("kind", std::string("Binding"))
      .add_text("metadata", JsonMembers().add("name", pod).object())
      .add_text("target", JsonMembers()
                              .add("apiVersion", std::string("v1"))
                              .add("kind", std::string("Node"))
                              .add("name", node)
                              .object())
      .object();
}

std::string guardian_job(const EngineSettings& settings, const GuardianStart& start, const RunsAs& runs_as) {
  Mounts mounts;
  mounts.host(start.volume, false);
  for (const auto& directory : settings.host_directories) {
    mounts.host(directory, true);
  }
  for (const auto& file : start.files) {
    mounts.host(file, true);
  }
  const bool has_account = settings.kubeconfig.empty();
  if (has_account) {
    mounts.account();
  } else {
    mounts.host(settings.kubeconfig, true);
  }
  std::vector<std::string> command{"/bin/sh", "-c", kGuardianShell, Volume(start.volume).guardian_log().string()};
  command.insert(command.end(), start.command.begin(), start.command.end());
  // It counts nowhere as taken, or a node that is full of learners by our own count could not take its last one.
  const std::string resources = R"({"requests":{"cpu":"0","memory":"0"}})";
  const std::string label_text = labels({{kRoleLabel, "guardian"}, {kJobLabel, start.job}, {kTeamLabel, start.team}});

  // Where learners are another user than the guardian, it reads and writes what is theirs as that user.
  const LearnerUser learners = learner_user_of(Volume(start.volume));
  const bool acts_as_others = runs_as.user == 0 && learners.user != 0;
  const std::string powers = acts_as_others ? R"(["CHOWN","DAC_OVERRIDE","FOWNER","SETGID","SETUID"])" : "[]";
  JsonMembers specification;
  specification.add("restartPolicy", std::string("OnFailure"))
      .add("automountServiceAccountToken", false)
      .add("enableServiceLinks", has_account)
      .add_text("securityContext", security_of_pod(runs_as))
      .add_text("tolerations", tolerations())
      .add_text("containers",
                "[" +
                    container("guardian", settings, literal_list(command), environment_text(start.environment),
                              start.volume, resources, mounts, powers) +
                    "]")
      .add_text("volumes", mounts.volumes());
  if (has_account) {
    specification.add("serviceAccountName", std::string(kGuardianAccount));
  }
  const std::string pod = JsonMembers()
                              .add_text("metadata", JsonMembers().add_text("labels", label_text).object())
                              .add_text("spec", specification.object())
                              .object();
  return JsonMembers()
      .add("apiVersion", std::string("batch/v1"))
      .add("kind", std::string("Job"))
      .add_text("metadata", JsonMembers().add("name", guardian_name(start.job)).add_text("labels", label_text).object())
      .add_text("spec", JsonMembers()
                            .add("backoffLimit", 1'000'000)
                            .add("completions", 1)
                            .add("parallelism", 1)
                            .add_text("template", pod)
                            .object())
      .object();
}

std::string namespace_object(const std::string& name, const std::string& team) {
  return JsonMembers()
      .add("apiVersion", std::string("v1"))
      .add("kind", std::string("Namespace"))
      .add_text("metadata", JsonMembers().add("name", name).add_text("labels", labels({{kTeamLabel, team}})).object())
      .object();
}

std::string closed_policy() {
  return JsonMembers()
      .add("apiVersion", std::string("networking.k8s.io/v1"))
      .add("kind", std::string("NetworkPolicy"))
      .add_text("metadata", JsonMembers().add("name", std::string("closed")).add_text("labels", labels({})).object())
      .add_text("spec", R"({"podSelector":{},"policyTypes":["Ingress"],"ingress":[]})")
      .object();
}

std::string job_policy(const std::string& job, const std::optional<Owner>& owner) {
  const std::string selector =
      JsonMembers().add_text("matchLabels", JsonMembers().add(kJobLabel, job).object()).object();
  const std::string peer = "[{\"from\":[" + JsonMembers().add_text("podSelector", selector).object() + "]}]";
  return JsonMembers()
      .add("apiVersion", std::string("networking.k8s.io/v1"))
      .add("kind", std::string("NetworkPolicy"))
      .add_text("metadata", JsonMembers()
                                .add("name", policy_name(job))
                                .add_text("labels", labels({{kJobLabel, job}}))
                                .add_text("ownerReferences", owner_references(owner))
                                .object())
      .add_text("spec", JsonMembers()
                            .add_text("podSelector", selector)
                            .add_text("policyTypes", R"(["Ingress"])")
                            .add_text("ingress", peer)
                            .object())
      .object();
}

std::string guardian_account() {
  return JsonMembers()
      .add("apiVersion", std::string("v1"))
      .add("kind", std::string("ServiceAccount"))
      .add_text("metadata",
                JsonMembers().add("name", std::string(kGuardianAccount)).add_text("labels", labels({})).object())
      .object();
}

namespace {

std::string role_binding(const std::string& kind, const std::string& name, const std::string& role,
                         const std::string& account_namespace) {
  JsonMembers subject;
  subject.add("kind", std::string("ServiceAccount")).add("name", std::string(kGuardianAccount));
  subject.add("namespace", account_namespace);
  return JsonMembers()
      .add("apiVersion", std::string("rbac.authorization.k8s.io/v1"))
      .add("kind", kind)
      .add_text("metadata", JsonMembers().add("name", name).add_text("labels", labels({})).object())
      .add_text("roleRef", JsonMembers()
                               .add("apiGroup", std::string("rbac.authorization.k8s.io"))
                               .add("kind", std::string("ClusterRole"))
                               .add("name", role)
                               .object())
      .add_text("subjects", "[" + subject.object() + "]")
      .object();
}

}  // namespace

std::string guardian_role_binding(const std::string& name_space) {
  return role_binding("RoleBinding", kGuardianAccount, kGuardianRole, name_space);
}
std::string guardian_node_binding(const std::string& name_space) {
  return role_binding("ClusterRoleBinding", fmt::format("{}-{}", kNodeReaderRole, name_space), kNodeReaderRole,
                      name_space);
}

}  // namespace tesser::platform
