// The engine `local`: the suite, and what only it does.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>

#include "base/file.h"
#include "engine_conformance.h"
#include "platform/engine/local_process.h"

namespace tesser::platform {
namespace {

class LocalCluster : public EngineCluster {
 public:
  LocalCluster() {
    char name[] = "/tmp/tesser-local-XXXXXX";
    directory_ = ::mkdtemp(name);
    std::filesystem::create_directory(directory_ / "volumes");
  }
  ~LocalCluster() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  EngineSettings settings() override {
    EngineSettings settings;
    settings.state_directory = directory_ / "state";
    settings.nodes = {Node{"node1", Resources{4000, std::int64_t{4} << 30, {}}, true, ""},
                      Node{"node2", Resources{4000, std::int64_t{4} << 30, {}}, true, ""}};
    return settings;
  }
  std::filesystem::path shared_directory() override { return directory_ / "volumes"; }
  std::chrono::milliseconds limit() override { return std::chrono::milliseconds(5000); }
  std::chrono::milliseconds beat() override { return std::chrono::milliseconds(500); }
  Resources small_learner() override { return Resources{500, std::int64_t{64} << 20, {}}; }

  void kill_node(const std::string& name) override {
    std::ofstream(directory_ / "state" / "nodes" / name) << "lost its power\n";
  }
  void mend_node(const std::string& name) override { std::filesystem::remove(directory_ / "state" / "nodes" / name); }

 private:
  std::filesystem::path directory_;
};

EngineClusterFactory one_cluster() {
  return [] {
    static const auto cluster = std::make_shared<LocalCluster>();
    return cluster;
  };
}

INSTANTIATE_TEST_SUITE_P(Local, EngineConformance, testing::Values(one_cluster()));

class LocalEngineTest : public EngineConformance {};
INSTANTIATE_TEST_SUITE_P(Local, LocalEngineTest, testing::Values(one_cluster()));

TEST_P(LocalEngineTest, ACommandThatIsNotThereStartsNothing) {
  Deployment deployment = job(2);
  deployment.command = {"/no/such/program"};
  const auto deployed = engine_->deploy(deployment);
  ASSERT_FALSE(deployed);
  EXPECT_EQ(deployed.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(deployed.error().message, testing::HasSubstr("/no/such/program"));
  EXPECT_TRUE(engine_->learners(deployment.job, deployment.team)->empty());
}

TEST_P(LocalEngineTest, WhatNeverFitsIsRefusedWithTheNumbers) {
  Deployment deployment = job(2);
  deployment.each.millicpus = 3000;
  deployment.nodes = {"node1", "node1"};
  const auto deployed = engine_->deploy(deployment);
  ASSERT_FALSE(deployed);
  EXPECT_EQ(deployed.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(deployed.error().message, testing::HasSubstr("node1 has 4 cpus"));
}

TEST_P(LocalEngineTest, ANodeThatIsNotReadyTakesNothing) {
  const Deployment deployment = job(2);
  cluster_->kill_node("node2");
  const auto deployed = engine_->deploy(deployment);
  cluster_->mend_node("node2");
  ASSERT_FALSE(deployed);
  EXPECT_EQ(deployed.error().code, ErrorCode::kFailed);
  EXPECT_THAT(deployed.error().message, testing::HasSubstr("lost its power"));
  expect_gone(*engine_, deployment);
}

TEST_P(LocalEngineTest, EndsDescendantsThatHaveLeftBothSessionAndControlGroup) {
  const Deployment deployment = job(1, R"(
(for group in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do echo 0 2> /dev/null > $group; done
exec setsid sh -c 'while :; do echo beat >> '$name'-child.beats; sleep 0.1; done') < /dev/null > /dev/null 2>&1 &
)");
  ASSERT_TRUE(engine_->deploy(deployment));
  ASSERT_TRUE(eventually([&] { return is_beating(deployment, 0, "-child"); }, cluster_->limit()));
  ASSERT_TRUE(engine_->remove(deployment.job, deployment.team, 1));
  EXPECT_FALSE(is_beating(deployment, 0, "-child"));
}

TEST_P(LocalEngineTest, ALearnerThatUsesTooMuchMemoryEndsAndTheReasonSaysSo) {
  if (::access("/sys/fs/cgroup", W_OK) != 0 || ::getuid() != 0) {
    GTEST_SKIP() << "needs control groups, which only root may make here";
  }
  // Doubles a variable until the limit of 64 MiB ends the shell.
  const Deployment deployment = job(1, "x=0123456789abcdef; while :; do x=$x$x; done");
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, 0, LearnerState::kEnded);
  EXPECT_EQ(status(*engine_, deployment, 0)->reason, "out of memory");
}

TEST_P(LocalEngineTest, AProcessThatGotTheNumberOfADeadLearnerIsLeftAlone) {
  const Deployment deployment = job(1, "exit 0");
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kEnded);
  // The note of the learner names a process that lives and began at another time, as when numbers are given again.
  const pid_t other = ::fork();
  if (other == 0) {
    ::setsid();
    ::pause();
    ::_exit(0);
  }
  const auto note = cluster_->settings().state_directory / "jobs" / deployment.job / "1" / "learner-0.json";
  ASSERT_TRUE(read_note(note));
  std::ofstream(note) << "{\"process\":" << other << ",\"start_ticks\":1,\"boot\":\"" << boot_identifier() << "\"}";
  expect_state(*engine_, deployment, LearnerState::kEnded);
  ASSERT_TRUE(engine_->remove(deployment.job, deployment.team, std::nullopt));
  EXPECT_EQ(::kill(other, 0), 0);
  const auto status = process_status(other);
  ASSERT_TRUE(status);
  EXPECT_FALSE(status->has_ended);
  ::kill(other, SIGKILL);
}

TEST_P(LocalEngineTest, StartsAndEndsAHundredLearners) {
  Deployment deployment = job(1);
  deployment.command = {"/bin/sleep", "1000"};
  deployment.each = Resources{10, 0, {}};
  deployment.nodes.assign(100, "node1");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(engine_->deploy(deployment));
  ASSERT_TRUE(engine_->remove(deployment.job, deployment.team, std::nullopt));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_P(LocalEngineTest, AStateDirectoryThatCannotBeMadeIsNamed) {
  EngineSettings settings = cluster_->settings();
  settings.state_directory = "/proc/nowhere";
  const auto engine = make_engine(settings);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(engine.error().message, testing::HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace tesser::platform
