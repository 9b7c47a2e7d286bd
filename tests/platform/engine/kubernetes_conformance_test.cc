// The engine `kubernetes`: the suite, and what only it does, with the cluster that ./x test --kubernetes has started.
// TESSER_KUBERNETES_CLUSTER is its directory (tests/clusters/kubernetes-cluster.sh), TESSER_KUBERNETES_IMAGE an image
// that finds a shell in /usr of its node.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "base/file.h"
#include "engine_conformance.h"
#include "platform/engine/guardian_host.h"
#include "platform/engine/kubernetes_cluster.h"
#include "platform/engine/kubernetes_guardians.h"

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

class TestCluster : public EngineCluster {
 public:
  TestCluster() {
    char name[] = "/tmp/tesser-kubernetes-XXXXXX";
    directory_ = ::mkdtemp(name);
    std::filesystem::permissions(directory_, std::filesystem::perms(0755));  // users of learners may pass
  }
  ~TestCluster() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  EngineSettings settings() override {
    EngineSettings settings;
    settings.kind = "kubernetes";
    settings.patience = milliseconds(15000);  // a kubelet's own least grace is 2 s, on a machine that does other things
    settings.kubeconfig = std::filesystem::path(variable("TESSER_KUBERNETES_CLUSTER")) / "kubeconfig";
    settings.image = variable("TESSER_KUBERNETES_IMAGE");
    settings.host_directories = {"/usr"};
    return settings;
  }
  std::filesystem::path shared_directory() override { return directory_; }
  milliseconds limit() override { return milliseconds(30000); }
  milliseconds late() override { return milliseconds(15000); }
  Resources small_learner() override { return Resources{100, std::int64_t{64} << 20, {}}; }

  void kill_node(const std::string& name) override { script("kill-node", number(name)); }
  void mend_node(const std::string& name) override { script("start-node", number(name)); }
  milliseconds node_limit() override { return milliseconds(60000); }
  bool stop_system() override {
    script("kill-api");
    return true;
  }
  void start_system() override { script("start-api"); }

  static void script(const std::string& verb, const std::string& word = "") {
    const std::string command = "bash " TESSER_SOURCE_DIR "/tests/clusters/kubernetes-cluster.sh " + verb + " " +
                                variable("TESSER_KUBERNETES_CLUSTER") + " " + word;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  static std::string number(const std::string& node) { return node.substr(std::string("node").size()); }

 private:
  std::filesystem::path directory_;
};

EngineClusterFactory one_cluster() {
  return [] {
    static const auto cluster = std::make_shared<TestCluster>();
    return cluster;
  };
}

INSTANTIATE_TEST_SUITE_P(Kubernetes, EngineConformance, testing::Values(one_cluster()));

class KubernetesTest : public EngineConformance {
 protected:
  static ApiDeadline soon() { return steady_clock::now() + milliseconds(15000); }
  KubernetesApi& api() {
    if (api_ == nullptr) {
      api_ = std::move(*KubernetesApi::open(*read_kubeconfig(cluster_->settings().kubeconfig)));
    }
    return *api_;
  }
  Json object(const std::string& path) {
    const auto answer = api().request("GET", path, "", soon());
    EXPECT_TRUE(answer && answer->is_success())
        << path << ": " << (answer ? answer->message() : answer.error().message);
    return answer ? answer->body : Json();
  }
  GuardianHost& guardians() { return *engine_->guardian_host(); }
  // A guardian that notes its starts in the job's volume and then does `last`.
  static GuardianStart guardian(const Deployment& deployment, const std::string& last) {
    std::filesystem::create_directories(deployment.volume / "guardian");
    return {deployment.job,
            deployment.team,
            {"sh", "-c", "echo $$ >> guardian.starts; " + last},
            {},
            deployment.volume,
            {}};
  }
  static int guardian_starts(const Deployment& deployment) {
    std::ifstream file(deployment.volume / "guardian.starts");
    int count = 0;
    for (std::string line; std::getline(file, line);) {
      ++count;
    }
    return count;
  }
  bool guardian_becomes(const Deployment& deployment, GuardianState state) {
    return eventually(
        [&] {
          const auto status = guardians().guardian_status(deployment.job, deployment.team);
          EXPECT_TRUE(status) << status.error().message;
          return status && status->state == state;
        },
        cluster_->node_limit());
  }

 private:
  std::unique_ptr<KubernetesApi> api_;
};
INSTANTIATE_TEST_SUITE_P(Kubernetes, KubernetesTest, testing::Values(one_cluster()));

TEST_P(KubernetesTest, ATeamHasANamespaceThatIsClosedButToAJobsOwnPods) {
  const Deployment deployment = job(1);
  ASSERT_TRUE(engine_->deploy(deployment));
  const std::string policies = "/apis/networking.k8s.io/v1/namespaces/tesser-conformance/networkpolicies/";
  const Json closed = object(policies + "closed");
  EXPECT_TRUE(json_at(closed, {"spec", "podSelector", "matchLabels"}) == nullptr);
  EXPECT_TRUE(json_at(closed, {"spec", "ingress"}) == nullptr);
  const Json policy = object(policies + policy_name(deployment.job));
  EXPECT_EQ(string_at(policy, {"spec", "podSelector", "matchLabels", kJobLabel}), deployment.job);
  const Json& peer = json_at(policy, {"spec", "ingress"})->array()->front().find("from")->array()->front();
  EXPECT_EQ(string_at(peer, {"podSelector", "matchLabels", kJobLabel}), deployment.job);
  ASSERT_TRUE(engine_->remove(deployment.job, deployment.team, std::nullopt));
  EXPECT_EQ(api().request("GET", policies + policy_name(deployment.job), "", soon())->status, 404);
}

TEST_P(KubernetesTest, LearnersHaveNoPowers) {
  const Deployment deployment =
      job(1,
          "{ grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; ls /var/run/secrets 2>&1; touch /usr/x 2>&1; "
          "df /dev/shm | tail -1; } > $name.powers.new; mv $name.powers.new $name.powers");
  ASSERT_TRUE(engine_->deploy(deployment));
  const auto path = deployment.volume / "1-0.powers";
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path); }, cluster_->limit()));
  const std::string text = *read_file(path);
  EXPECT_THAT(text, HasSubstr("CapEff:\t0000000000000000"));
  EXPECT_THAT(text, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(text, HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(text, HasSubstr("'/var/run/secrets': No such file"));
  EXPECT_THAT(text, HasSubstr("Read-only file system"));
}

TEST_P(KubernetesTest, LearnersRunAsTheOwnerOfTheirPartOfTheVolume) {
  const Deployment deployment = job(1, "id > $name.user.new; mv $name.user.new $name.user");
  std::filesystem::create_directories(deployment.volume / "attempts");
  ASSERT_EQ(::chown((deployment.volume / "attempts").c_str(), 12345, 12346), 0);
  ASSERT_TRUE(engine_->deploy(deployment));
  const auto path = deployment.volume / "1-0.user";
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path); }, cluster_->limit()));
  EXPECT_THAT(*read_file(path), HasSubstr("uid=12345 gid=12346"));
}

TEST_P(KubernetesTest, AnImageThatIsNotThereIsSaid) {
  EngineSettings settings = cluster_->settings();
  settings.image = "127.0.0.1:1/no/such/image:1";
  const auto engine = make_engine(settings);
  const Deployment deployment = job(1);
  ASSERT_TRUE((*engine)->deploy(deployment));
  EXPECT_TRUE(eventually(
      [&] {
        const auto seen = status(*engine_, deployment, 0);
        return seen && seen->state == LearnerState::kWaiting && seen->reason.find("Image") != std::string::npos;
      },
      cluster_->limit()));
}

TEST_P(KubernetesTest, WaitWakesWhenALearnerEnds) {
  const Deployment deployment = job(1, "sleep 2; exit 0");
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const auto start = steady_clock::now();
  while (status(*engine_, deployment, 0)->state == LearnerState::kRunning &&
         steady_clock::now() - start < cluster_->limit()) {
    const auto begin = steady_clock::now();
    engine_->wait(deployment.job, deployment.team, milliseconds(60000));
    EXPECT_LT(steady_clock::now() - begin, milliseconds(30000));
  }
  expect_state(*engine_, deployment, LearnerState::kEnded);
}

TEST_P(KubernetesTest, AnEndIsSeenAtOnceAndWithoutTheKubelet) {
  const Deployment deployment =
      job(2, "if [ $TESSER_RANK = 0 ]; then until [ -e $TEST_VOLUME/go ]; do :; done; exit 3; fi");
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const std::string node = TestCluster::number(deployment.nodes[0]);
  TestCluster::script("kill-kubelet", node);
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(200));
    std::ofstream(deployment.volume / "go");
  });
  const auto begin = steady_clock::now();
  while (status(*engine_, deployment, 0)->state == LearnerState::kRunning &&
         steady_clock::now() - begin < milliseconds(5000)) {
    engine_->wait(deployment.job, deployment.team, milliseconds(5000));
  }
  EXPECT_LT(steady_clock::now() - begin, milliseconds(2000));  // of which 200 were ours
  other.join();
  EXPECT_EQ(status(*engine_, deployment, 0)->state, LearnerState::kEnded);
  EXPECT_EQ(status(*engine_, deployment, 1)->state, LearnerState::kRunning);
  const auto removed = engine_->remove(deployment.job, deployment.team, std::nullopt);
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_LT(steady_clock::now() - begin, milliseconds(10000));  // it waits for the other node, and not for this one
  TestCluster::script("start-node", node);
}

TEST_P(KubernetesTest, AWatchFromTooFarBackSaysSo) {
  // Every write moves versions on; the first one is long forgotten.
  std::string version = "1";
  const auto seen = api().watch("/api/v1/namespaces/tesser-conformance/pods", "", version, soon(),
                                [](const std::string&, const Json&) { return false; });
  ASSERT_TRUE(seen) << seen.error().message;
  EXPECT_FALSE(*seen);
}

TEST_P(KubernetesTest, AWatchGoesOnFromItsVersion) {
  const std::string maps = "/api/v1/namespaces/default/configmaps";
  auto listed = api().list(maps, "", soon());
  ASSERT_TRUE(listed) << listed.error().message;
  std::set<std::string> names;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "watched-" + std::to_string(i);
    const std::string text = R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":")" + name + "\"}}";
    ASSERT_TRUE(api().request("POST", maps, text, soon())->is_success());
    // One change a watch: each goes on where the last one ended.
    const auto seen = api().watch(maps, "", listed->version, soon(), [&](const std::string& kind, const Json& object) {
      names.insert(kind + " " + string_at(object, {"metadata", "name"}));
      return false;
    });
    ASSERT_TRUE(seen && *seen) << (seen ? "" : seen.error().message);
    EXPECT_TRUE(names.contains("ADDED " + name));
  }
  EXPECT_EQ(names.size(), 20U);
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(api().request("DELETE", maps + "/watched-" + std::to_string(i), "", soon())->is_success());
  }
}

TEST_P(KubernetesTest, LearnersOfAKubeletThatDiesGoOnAndAreKnownAgain) {
  const Deployment deployment = job(2);
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const std::string node = TestCluster::number(deployment.nodes[1]);
  TestCluster::script("kill-kubelet", node);
  expect_state(*engine_, deployment, 1, LearnerState::kLost);
  EXPECT_THAT(status(*engine_, deployment, 1)->reason, HasSubstr("node " + deployment.nodes[1]));
  EXPECT_TRUE(is_beating(deployment, 1));
  TestCluster::script("start-node", node);
  EXPECT_TRUE(eventually([&] { return status(*engine_, deployment, 1)->state == LearnerState::kRunning; },
                         cluster_->node_limit()));
  EXPECT_TRUE(is_beating(deployment, 1));
  EXPECT_EQ(starts(deployment, 1), 1);
}

TEST_P(KubernetesTest, LearnersRemovedWhileTheirKubeletIsDeadEndWhenItIsBack) {
  const Deployment deployment = job(2);
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const std::string node = TestCluster::number(deployment.nodes[1]);
  TestCluster::script("kill-kubelet", node);
  expect_state(*engine_, deployment, 1, LearnerState::kLost);
  const auto removed = engine_->remove(deployment.job, deployment.team, std::nullopt);
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(engine_->learners(deployment.job, deployment.team)->empty());
  TestCluster::script("start-node", node);
  EXPECT_TRUE(eventually([&] { return !is_beating(deployment, 1); }, cluster_->node_limit()));
}

TEST_P(KubernetesTest, AnApiServerThatDiesDuringDeploymentsLosesNone) {
  for (const int life : {5, 15, 40, 80}) {
    const Deployment deployment = job(4);
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(life));
      TestCluster::script("kill-api");
      TestCluster::script("start-api");
    });
    auto deployed = engine_->deploy(deployment);
    other.join();
    // It may fail, and then all of it is tried again, as a guardian does.
    for (int again = 0; !deployed && again < 5; ++again) {
      EXPECT_EQ(deployed.error().code, ErrorCode::kFailed) << deployed.error().message;
      if (engine_->remove(deployment.job, deployment.team, deployment.attempt)) {
        deployed = engine_->deploy(deployment);
      }
    }
    ASSERT_TRUE(deployed) << deployed.error().message;
    // Kubelets look again up to half a minute after their API server has been away, longer than limit and patience.
    EXPECT_TRUE(eventually(
        [&] {
          const auto learners = engine_->learners(deployment.job, deployment.team);
          return learners && learners->size() == 4 &&
                 std::all_of(learners->begin(), learners->end(),
                             [](const LearnerStatus& each) { return each.state == LearnerState::kRunning; });
        },
        cluster_->node_limit()));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(is_beating(deployment, rank)) << rank;
    }
    EXPECT_TRUE(eventually([&] { return bool(engine_->remove(deployment.job, deployment.team, std::nullopt)); },
                           cluster_->node_limit()));
    expect_gone(*engine_, deployment);
  }
}

TEST_P(KubernetesTest, AGuardianOwnsItsLearners) {
  const Deployment deployment = job(2);
  const GuardianStart start = guardian(deployment, "sleep 1000");
  ASSERT_TRUE(guardians().start_guardian(start));
  ASSERT_TRUE(guardians().start_guardian(start));
  EXPECT_TRUE(guardian_becomes(deployment, GuardianState::kRunning));
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const auto all = guardians().guardian_statuses();
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->at(deployment.job).state, GuardianState::kRunning);
  EXPECT_EQ(guardian_starts(deployment), 1);
  const auto removed = guardians().remove_guardian(deployment.job, deployment.team);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(guardian_becomes(deployment, GuardianState::kAbsent));
  EXPECT_TRUE(
      eventually([&] { return engine_->learners(deployment.job, deployment.team)->empty(); }, cluster_->node_limit()));
  EXPECT_TRUE(guardians().remove_guardian(deployment.job, deployment.team));
  EXPECT_FALSE(guardians().guardian_statuses()->contains(deployment.job));
}

TEST_P(KubernetesTest, AGuardianThatIsKilledStartsAgainUntilItEndsByItself) {
  const Deployment deployment = job(1);
  ASSERT_TRUE(guardians().start_guardian(
      guardian(deployment, "test -e enough && exit 0; test $(wc -l < guardian.starts) = 2 && sleep 1000; kill -9 $$")));
  EXPECT_TRUE(eventually([&] { return guardian_starts(deployment) == 2; }, cluster_->limit()));
  std::ofstream(deployment.volume / "enough");
  // Hung: its pod is deleted, and the Job makes another.
  const auto restarted = guardians().restart_guardian(deployment.job, deployment.team);
  ASSERT_TRUE(restarted) << restarted.error().message;
  EXPECT_TRUE(guardian_becomes(deployment, GuardianState::kEnded));
  EXPECT_EQ(guardian_starts(deployment), 3);
  std::this_thread::sleep_for(milliseconds(3000));
  EXPECT_EQ(guardian_starts(deployment), 3);
  // As when a halted job is resumed.
  const auto again = guardians().start_guardian(guardian(deployment, "sleep 1000"));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(eventually([&] { return guardian_starts(deployment) == 4; }, cluster_->limit()));
  EXPECT_TRUE(guardian_becomes(deployment, GuardianState::kRunning));
  EXPECT_TRUE(guardians().remove_guardian(deployment.job, deployment.team));
}

TEST_P(KubernetesTest, AGuardianOfADeadNodeMoves) {
  const Deployment deployment = job(1);
  ASSERT_TRUE(guardians().start_guardian(guardian(deployment, "exec sleep 1000")));
  EXPECT_TRUE(guardian_becomes(deployment, GuardianState::kRunning));
  const std::string node = guardians().guardian_status(deployment.job, deployment.team)->node;
  cluster_->kill_node(node);
  EXPECT_TRUE(guardian_becomes(deployment, GuardianState::kLost));
  const auto restarted = guardians().restart_guardian(deployment.job, deployment.team);
  EXPECT_TRUE(restarted) << restarted.error().message;
  EXPECT_TRUE(guardian_becomes(deployment, GuardianState::kRunning));
  EXPECT_NE(guardians().guardian_status(deployment.job, deployment.team)->node, node);
  EXPECT_EQ(guardian_starts(deployment), 2);
  cluster_->mend_node(node);
  EXPECT_TRUE(guardians().remove_guardian(deployment.job, deployment.team));
  EXPECT_TRUE(eventually(
      [&] {
        const auto nodes = engine_->nodes();
        return nodes && std::all_of(nodes->begin(), nodes->end(), [](const Node& each) { return each.is_ready; });
      },
      cluster_->node_limit()));
}

// The server as its service account, with the rights of examples/platform and no others, makes a new team's guardian;
// the guardian deploys by the account in its pod.
TEST_P(KubernetesTest, TheRightsOfTheExampleAreEnough) {
  const std::string kubeconfig = cluster_->settings().kubeconfig.string();
  const std::string apply =
      "kubectl --kubeconfig " + kubeconfig + " apply -f " TESSER_SOURCE_DIR "/examples/platform/kubernetes-rights.yaml";
  ASSERT_EQ(std::system((apply + " > /dev/null").c_str()), 0);
  const auto token =
      api().request("POST", "/api/v1/namespaces/tesser/serviceaccounts/tesser-server/token",
                    R"({"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}})", soon());
  ASSERT_TRUE(token && token->is_success()) << (token ? token->message() : token.error().message);
  KubernetesAccess access = *read_kubeconfig(kubeconfig);
  access.token = string_at(token->body, {"status", "token"});

  Deployment deployment = job(2);
  deployment.team = "account-" + std::to_string(::getpid());
  EngineSettings settings = cluster_->settings();
  settings.kubeconfig.clear();
  const std::filesystem::path programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  ASSERT_TRUE(write_file_atomically(deployment.volume / "settings.json", to_json(settings)));
  ASSERT_TRUE(write_file_atomically(deployment.volume / "deployment.json", to_json(deployment)));
  KubernetesCluster server{settings, std::move(*KubernetesApi::open(access))};
  KubernetesGuardians its_guardians(server);
  const auto started = its_guardians.start_guardian(
      {deployment.job,
       deployment.team,
       {programs / "engine_actor", deployment.volume / "settings.json", deployment.volume / "deployment.json"},
       {},
       deployment.volume,
       {programs}});
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_TRUE(guardian_becomes(deployment, GuardianState::kEnded))
      << *read_file(deployment.volume / "guardian" / "log");
  expect_state(*engine_, deployment, LearnerState::kRunning);
  EXPECT_EQ(its_guardians.guardian_statuses()->at(deployment.job).state, GuardianState::kEnded);

  // And no more than it needs: the secrets of the cluster are none of its business.
  EXPECT_EQ(server.api->request("GET", "/api/v1/namespaces/kube-system/secrets", "", soon())->status, 403);
  const auto more = server.api->request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                                        R"({"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding",)"
                                        R"("metadata":{"name":"more"},"roleRef":{"apiGroup":)"
                                        R"("rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}})",
                                        soon());
  EXPECT_EQ(more->status, 403);
  const auto removed = its_guardians.remove_guardian(deployment.job, deployment.team);
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(
      eventually([&] { return engine_->learners(deployment.job, deployment.team)->empty(); }, cluster_->node_limit()));
  EXPECT_TRUE(api().request("DELETE", "/api/v1/namespaces/tesser-" + deployment.team, "", soon())->is_success());
}

TEST_P(KubernetesTest, OutsideOfPodsAKubeconfigIsAskedFor) {
  EngineSettings settings = cluster_->settings();
  settings.kubeconfig.clear();
  const auto engine = make_engine(settings);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message, HasSubstr("--kubeconfig"));
}

}  // namespace
}  // namespace tesser::platform
