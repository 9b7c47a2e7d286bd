// What the engine `kubernetes` writes and reads, without a cluster; with one: kubernetes_conformance_test.cc.
#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/engine/kubernetes_access.h"
#include "platform/engine/kubernetes_api.h"
#include "platform/engine/kubernetes_marks.h"
#include "platform/engine/kubernetes_objects.h"
#include "platform/engine/kubernetes_status.h"

namespace tesser::platform {
namespace {

using ::testing::HasSubstr;

Json json(const std::string& text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text << ": " << parsed.error().message;
  return parsed ? *parsed : Json();
}

std::string kubeconfig(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts:\n- name: other\n  context: {cluster: x, user: "
         "x}\n"
         "- name: here\n  context: {cluster: c, user: u}\nclusters:\n- name: c\n  cluster: " +
         cluster + "\nusers:\n- name: u\n  user: " + user + "\n";
}

TEST(KubernetesAccess, ReadsTokensAndCertificates) {
  auto access = parse_kubeconfig(
      kubeconfig("{server: 'https://host:6443/', certificate-authority-data: 'Y2EgcGVt'}", "{token: word}"),
      "/a/config");
  ASSERT_TRUE(access) << access.error().message;
  EXPECT_EQ(access->server, "https://host:6443");
  EXPECT_EQ(access->token, "word");
  EXPECT_EQ(access->https.authorities, "ca pem");
  EXPECT_TRUE(access->https.verify);
  access = parse_kubeconfig(kubeconfig("{server: 'https://host', insecure-skip-tls-verify: true}",
                                       "{client-certificate-data: 'Y2VydA==', client-key-data: 'a2V5'}"),
                            "/a/config");
  ASSERT_TRUE(access) << access.error().message;
  EXPECT_FALSE(access->https.verify);
  EXPECT_EQ(access->https.client_certificate, "cert");
  EXPECT_EQ(access->https.client_key, "key");
  access =
      parse_kubeconfig(kubeconfig("{server: 'https://host', insecure-skip-tls-verify: perhaps}", "{}"), "/a/config");
  ASSERT_TRUE(access) << access.error().message;
  EXPECT_TRUE(access->https.verify);  // what is not understood is no leave
}

TEST(KubernetesAccess, FilesAreBesideTheKubeconfig) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("kubeconfig-" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "ca.pem") << "authorities";
  std::ofstream(directory / "config") << kubeconfig("{server: 'https://host', certificate-authority: ca.pem}",
                                                    "{tokenFile: token}");
  const auto access = read_kubeconfig(directory / "config");
  ASSERT_TRUE(access) << access.error().message;
  EXPECT_EQ(access->https.authorities, "authorities");
  EXPECT_EQ(access->token_file, directory / "token");
  std::filesystem::remove(directory / "ca.pem");
  const auto missing = read_kubeconfig(directory / "config");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("ca.pem"));
  std::filesystem::remove_all(directory);
}

TEST(KubernetesAccess, SaysWhatIsWrong) {
  const auto message = [](const std::string& text) {
    const auto access = parse_kubeconfig(text, "/a/config");
    EXPECT_FALSE(access) << text;
    return access ? "" : access.error().message;
  };
  EXPECT_THAT(message("a: [1\n"), HasSubstr("/a/config: line"));
  EXPECT_THAT(message("just words"), HasSubstr("is no kubeconfig"));
  EXPECT_THAT(message("kind: Config"), HasSubstr("current-context"));
  EXPECT_THAT(message("current-context: x"), HasSubstr("contexts has no entry named 'x'"));
  EXPECT_THAT(message(kubeconfig("{server: host}", "{token: x}")), HasSubstr("'host' is no URL"));
  EXPECT_THAT(message(kubeconfig("{server: 'https://host'}", "{exec: {command: aws}}")), HasSubstr("'exec'"));
  EXPECT_THAT(message(kubeconfig("{server: 'https://host', certificate-authority-data: '%'}", "{}")),
              HasSubstr("certificate-authority-data: is not Base64"));
  EXPECT_THAT(message(kubeconfig("[]", "{}")), HasSubstr("clusters has no entry named 'c'"));
}

TEST(KubernetesAccess, DecodesBase64) {
  EXPECT_EQ(*base64_decoded(""), "");
  EXPECT_EQ(*base64_decoded("Zg=="), "f");
  EXPECT_EQ(*base64_decoded("Zm8="), "fo");
  EXPECT_EQ(*base64_decoded("Zm9v\nYmFy\n"), "foobar");
  EXPECT_EQ(*base64_decoded("+/8A"), std::string("\xfb\xff\x00", 3));
  for (const char* wrong : {"Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Z-8="}) {
    EXPECT_FALSE(base64_decoded(wrong)) << wrong;
  }
}

TEST(KubernetesStatus, ReadsQuantities) {
  const std::map<std::string, std::int64_t> thousandths{{"1", 1000},
                                                        {"250m", 250},
                                                        {"1.5", 1500},
                                                        {"0.1", 100},
                                                        {"100u", 1},
                                                        {"1n", 1},
                                                        {"2k", 2'000'000},
                                                        {"1e3", 1'000'000},
                                                        {"1Ki", 1'024'000},
                                                        {"0", 0},
                                                        {"2.5Gi", 2'684'354'560'000},
                                                        {"129e6", 129'000'000'000}};
  for (const auto& [text, value] : thousandths) {
    EXPECT_EQ(quantity_in_thousandths(text), value) << text;
  }
  EXPECT_EQ(quantity("24Gi"), std::int64_t{24} << 30);
  EXPECT_EQ(quantity("123456789012"), 123456789012);
  EXPECT_EQ(quantity("1500m"), 2);
  for (const char* wrong : {"", "x", "1x", "-1", "1 Gi", "9e30", "nan"}) {
    EXPECT_FALSE(quantity(wrong)) << wrong;
  }
}

std::string node_text(const std::string& specification, const std::string& status, const std::string& labels = "{}") {
  return R"({"metadata":{"name":"n","labels":)" + labels + R"(},"spec":)" + specification +
         R"(,"status":{"allocatable":{"cpu":"3920m","memory":"16Gi","nvidia.com/gpu":"4","hugepages-1Gi":"0"},)" +
         status + "}}";
}
constexpr const char* kReady =
    R"("conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True"}])";

TEST(KubernetesStatus, ReadsNodes) {
  const auto ready = read_node(json(node_text("{}", kReady)));
  EXPECT_TRUE(ready.node.is_ready);
  EXPECT_FALSE(ready.is_lost);
  EXPECT_EQ(ready.node.capacity, (Resources{3920, std::int64_t{16} << 30, {{"nvidia.com/gpu", 4}}}));

  const auto named = read_node(json(node_text("{}", kReady, R"({"tesser/accelerator":"h200"})")));
  EXPECT_EQ(named.node.capacity.accelerators, (std::map<std::string, std::int64_t>{{"h200", 4}}));
  EXPECT_EQ(named.accelerators.at("h200"), "nvidia.com/gpu");

  const auto silent = read_node(json(node_text(
      "{}",
      R"("conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped"}])")));
  EXPECT_FALSE(silent.node.is_ready);
  EXPECT_TRUE(silent.is_lost);
  EXPECT_EQ(silent.node.not_ready, "NodeStatusUnknown: Kubelet stopped");

  const auto ill = read_node(json(node_text("{}", R"("conditions":[{"type":"Ready","status":"False","reason":"R"}])")));
  EXPECT_FALSE(ill.node.is_ready);
  EXPECT_FALSE(ill.is_lost);

  const auto cordoned = read_node(json(node_text(R"({"unschedulable":true})", kReady)));
  EXPECT_FALSE(cordoned.node.is_ready);
  EXPECT_EQ(cordoned.node.not_ready, "is cordoned");

  const auto taint = [](const std::string& key, const std::string& effect) {
    return read_node(json(node_text(R"({"taints":[{"key":")" + key + R"(","effect":")" + effect + "\"}]}", kReady)));
  };
  EXPECT_FALSE(taint("node-role.kubernetes.io/master", "NoSchedule").is_for_learners);
  EXPECT_TRUE(taint("nvidia.com/gpu", "NoSchedule").node.is_ready);
  EXPECT_TRUE(taint("anything", "PreferNoSchedule").node.is_ready);
  EXPECT_THAT(taint("node.kubernetes.io/disk-pressure", "NoSchedule").node.not_ready, HasSubstr("disk-pressure"));
}

std::string pod_text(const std::string& status) {
  return R"({"metadata":{"name":"p","labels":{"tesser/attempt":"3","tesser/rank":"1"}},"spec":{"nodeName":"n"},"status":{)" +
         status + "}}";
}

TEST(KubernetesStatus, ReadsLearners) {
  const auto read = [](const std::string& status) { return *read_learner(json(pod_text(status))); };
  EXPECT_EQ(read(R"("phase":"Running")").state, LearnerState::kRunning);
  EXPECT_EQ(read(R"("phase":"Running")").attempt, 3);
  EXPECT_EQ(read(R"("phase":"Running")").rank, 1);
  EXPECT_EQ(read(R"("phase":"Running")").node, "n");
  EXPECT_EQ(read(R"("phase":"Succeeded")").state, LearnerState::kEnded);
  EXPECT_EQ(read("").state, LearnerState::kWaiting);

  const auto killed =
      read(R"("phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}])");
  EXPECT_EQ(killed.state, LearnerState::kEnded);
  EXPECT_EQ(killed.reason, "OOMKilled");
  const auto plain =
      read(R"("phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":1,"reason":"Error"}}}])");
  EXPECT_EQ(plain.reason, "");
  const auto evicted = read(R"("phase":"Failed","reason":"Evicted","message":"disk")");
  EXPECT_EQ(evicted.reason, "Evicted: disk");
  const auto image = read(
      R"("phase":"Pending","containerStatuses":[{"state":{"waiting":{"reason":"ErrImagePull","message":"none"}}}])");
  EXPECT_EQ(image.state, LearnerState::kWaiting);
  EXPECT_EQ(image.reason, "ErrImagePull: none");
  const auto unscheduled = read(
      R"("phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/2"}])");
  EXPECT_EQ(unscheduled.reason, "Unschedulable: 0/2");
  EXPECT_FALSE(read_learner(json(R"({"metadata":{"labels":{"tesser/rank":"x"}}})")));
}

TEST(KubernetesStatus, KnowsContainersThatCannotBegin) {
  const auto waits = [](const std::string& reason) {
    return has_not_begun(json(pod_text(R"("containerStatuses":[{"state":{"waiting":{"reason":")" + reason + "\"}}}]")));
  };
  EXPECT_TRUE(waits("ImagePullBackOff"));
  EXPECT_FALSE(waits("ContainerCreating"));
  EXPECT_FALSE(has_not_begun(json(pod_text(R"("phase":"Pending")"))));
  EXPECT_FALSE(has_not_begun(json(pod_text(R"("containerStatuses":[{"state":{"running":{}}}])"))));
}

TEST(KubernetesObjects, NamesThatKubernetesCannotHaveAreRefused) {
  const EngineSettings settings;
  EXPECT_TRUE(check_names(settings, "job-1", "team"));
  const auto team = check_names(settings, "job-1", "A Team");
  ASSERT_FALSE(team);
  EXPECT_EQ(team.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(team.error().message, HasSubstr("A Team"));
  EXPECT_FALSE(check_names(settings, std::string(60, 'j'), "team"));
  EXPECT_FALSE(check_names(settings, "../job", "team"));
}

TEST(KubernetesObjects, WordsReachTheContainerAsTheyAre) {
  EngineSettings settings;
  settings.image = "image:1";
  settings.host_directories = {"/opt", "/opt", "/volume"};
  Deployment deployment{"job",
                        "team",
                        2,
                        {"sh", "-c", "echo $HOME $(date) \"$$\""},
                        {{"A", "$(B) \\ \"c\"\n"}},
                        "/volume",
                        Resources{250, 1 << 20, {{"h200", 1}}},
                        {"n1"}};
  const Json pod = json(
      learner_pod(settings, deployment, 0, {{"h200", "nvidia.com/gpu"}}, Owner{"guardian-job", "u"}, {1000, 1001}));
  const Json& container = pod.find("spec")->find("containers")->array()->front();
  const auto& command = *container.find("command")->array();
  // Kubernetes reads "$$" as "$".
  EXPECT_EQ(*command.back().string(), "echo $$HOME $$(date) \"$$$$\"");
  EXPECT_EQ(string_at(container.find("env")->array()->front(), {"value"}), "$$(B) \\ \"c\"\n");
  EXPECT_EQ(string_at(container.find("env")->array()->back(), {"valueFrom", "fieldRef", "fieldPath"}), "metadata.uid");
  EXPECT_EQ(string_at(container, {"resources", "limits", "nvidia.com/gpu"}), "1");
  EXPECT_EQ(string_at(container, {"resources", "requests", "cpu"}), "250m");
  EXPECT_EQ(container.find("volumeMounts")->array()->size(), 3U);  // shared memory, /volume, /opt: each once
  EXPECT_EQ(*json_at(pod, {"spec", "securityContext", "runAsUser"})->integer(), 1000);
  EXPECT_EQ(string_at(pod, {"spec", "schedulerName"}), "tesser");
  EXPECT_EQ(string_at(json_at(pod, {"metadata", "ownerReferences"})->array()->front(), {"uid"}), "u");
}

TEST(KubernetesMarks, SayThatALearnerHasEnded) {
  const std::filesystem::path volume = std::filesystem::temp_directory_path() / ("marks-" + std::to_string(::getpid()));
  const auto pod = [&](const std::string& identity, const std::string& labels) {
    return json(R"({"metadata":{"uid":")" + identity + R"(","labels":)" + labels +
                R"(},"spec":{"containers":[{"workingDir":")" + volume.string() + "\"}]}}");
  };
  const std::string of_learner = R"({"tesser/attempt":"3"})";
  const std::filesystem::path directory = marks_directory(volume, 3);
  EXPECT_FALSE(marked_end(pod("a", of_learner)));  // there is no directory yet
  std::filesystem::create_directories(directory);
  AwaitedMarks awaited;
  EXPECT_FALSE(awaited.is_any_there());
  awaited.add(pod("a", of_learner));
  awaited.add(pod("b", of_learner));
  EXPECT_FALSE(awaited.is_any_there());
  std::ofstream(directory / "ended-a.new") << "1";
  EXPECT_FALSE(marked_end(pod("a", of_learner)));
  const std::map<std::string, std::string> reasons{
      {"0 0\n", ""}, {"137 0\n", ""}, {"137 2\n", "OOMKilled"}, {"1 2\n", ""}, {"", ""}, {"137", ""}, {"x y z", ""}};
  for (const auto& [text, reason] : reasons) {
    std::ofstream(directory / "ended-a") << text;
    EXPECT_EQ(marked_end(pod("a", of_learner)), reason) << text;
  }
  EXPECT_TRUE(awaited.is_any_there());
  EXPECT_FALSE(marked_end(pod("b", of_learner)));
  EXPECT_FALSE(marked_end(pod("a", R"({"tesser/attempt":"4"})")));
  EXPECT_FALSE(marked_end(pod("a", "{}")));  // of a guardian
  EXPECT_FALSE(marked_end(pod("../ended-a", of_learner)));
  awaited.clear();
  EXPECT_FALSE(awaited.is_any_there());
  std::filesystem::remove_all(volume);
}

}  // namespace
}  // namespace tesser::platform
