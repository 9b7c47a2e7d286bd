// The engine `slurm`, against a real cluster of two nodes that tests/clusters/slurm-cluster.sh starts: the suite, and
// what only it does.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>

#include "base/file.h"
#include "engine_conformance.h"
#include "platform/engine/command_runner.h"

extern char** environ;

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class SlurmCluster : public EngineCluster {
 public:
  // Why there is no cluster, or empty.
  const std::string& why_not() const { return why_not_; }

  SlurmCluster() {
    char name[] = "/tmp/tesser-slurm-XXXXXX";
    directory_ = ::mkdtemp(name);
    std::filesystem::create_directory(directory_ / "volumes");
    const CommandOutput up = script({"up", cluster().string(), "--owner", std::to_string(::getpid())});
    constexpr int kCannot = 3;
    why_not_ = up.exit_code == kCannot ? up.errors : "";
    EXPECT_TRUE(up.exit_code == 0 || up.exit_code == kCannot) << up.errors;
  }
  ~SlurmCluster() override {
    script({"down", cluster().string()});
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  EngineSettings settings() override {
    EngineSettings settings;
    settings.kind = "slurm";
    settings.slurm_configuration = cluster() / "slurm.conf";
    return settings;
  }
  std::filesystem::path shared_directory() override { return directory_ / "volumes"; }
  milliseconds limit() override { return milliseconds(15000); }
  Resources small_learner() override { return Resources{1000, std::int64_t{64} << 20, {}}; }

  // Slurm is told, as a health check would; by itself it notices after SlurmdTimeout and its pings.
  void kill_node(const std::string& name) override {
    script({"kill-node", cluster().string(), name.substr(4)});
    slurm({"scontrol", "update", "NodeName=" + name, "State=DOWN", "Reason=lost its power"});
  }
  void mend_node(const std::string& name) override {
    // With ReturnToService=2 Slurm takes the node back as soon as it has registered.
    script({"start-node", cluster().string(), name.substr(4)});
  }
  bool stop_system() override {
    script({"stop-controller", cluster().string()});
    return true;
  }
  void start_system() override { script({"start-controller", cluster().string()}); }

  std::filesystem::path cluster() const { return directory_ / "cluster"; }

  CommandOutput script(std::vector<std::string> words) {
    words.insert(words.begin(), std::string(TESSER_SOURCE_DIR) + "/tests/clusters/slurm-cluster.sh");
    return run(std::move(words), {});
  }
  std::string slurm(std::vector<std::string> words) {
    const CommandOutput done = run(std::move(words), {"SLURM_CONF=" + (cluster() / "slurm.conf").string()});
    EXPECT_EQ(done.exit_code, 0) << done.errors;
    return done.output;
  }

 private:
  // With this process's environment, what is given before it.
  static CommandOutput run(std::vector<std::string> words, std::vector<std::string> environment) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      environment.emplace_back(*entry);
    }
    const auto done =
        run_command({std::move(words), std::move(environment), steady_clock::now() + milliseconds(60000)});
    EXPECT_TRUE(done) << done.error().message;
    return done.value_or(CommandOutput{-1, "", ""});
  }

  std::filesystem::path directory_;
  std::string why_not_;
};

std::shared_ptr<SlurmCluster> the_cluster() {
  static const auto cluster = std::make_shared<SlurmCluster>();
  return cluster;
}

EngineClusterFactory factory() {
  return [] { return the_cluster(); };
}

// Skips all tests where this machine cannot run Slurm.
class SlurmMachine : public testing::Environment {
 public:
  void SetUp() override {
    if (!the_cluster()->why_not().empty()) {
      GTEST_SKIP() << the_cluster()->why_not();
    }
  }
};
[[maybe_unused]] const auto* const kMachine = testing::AddGlobalTestEnvironment(new SlurmMachine);

INSTANTIATE_TEST_SUITE_P(Slurm, EngineConformance, testing::Values(factory()));

class SlurmEngineTest : public EngineConformance {};
INSTANTIATE_TEST_SUITE_P(Slurm, SlurmEngineTest, testing::Values(factory()));

SlurmCluster& slurm() { return *the_cluster(); }

void write_program(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

// Puts programs of the test before those of the system, for this process.
class FirstOnPath {
 public:
  explicit FirstOnPath(const std::filesystem::path& directory) : before_(std::getenv("PATH")) {
    ::setenv("PATH", (directory.string() + ":" + before_).c_str(), 1);
  }
  ~FirstOnPath() { ::setenv("PATH", before_.c_str(), 1); }
  const std::string& before() const { return before_; }

 private:
  std::string before_;
};

TEST_P(SlurmEngineTest, AnAnswerOfSbatchThatWasLostIsLookedFor) {
  const Deployment deployment = job(2);
  const std::filesystem::path programs = deployment.volume / "programs";
  std::filesystem::create_directory(programs);
  const FirstOnPath first(programs);
  write_program(programs / "sbatch",
                "#!/bin/sh\nPATH='" + first.before() +
                    "' sbatch \"$@\" >/dev/null\necho 'sbatch: error: Socket timed out' >&2\nexit 1\n");
  const auto deployed = engine_->deploy(deployment);
  ASSERT_TRUE(deployed) << deployed.error().message;
  ASSERT_TRUE(make()->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(is_beating(deployment, rank));
    EXPECT_EQ(starts(deployment, rank), 1);
  }
}

TEST_P(SlurmEngineTest, ASubmissionThatComesAfterItWasGivenUpStartsNothing) {
  const Deployment deployment = job(1);
  const std::filesystem::path programs = deployment.volume / "programs";
  std::filesystem::create_directory(programs);
  const std::filesystem::path late = programs / "late";
  {
    // Keeps its words for later, in Slurm's stead.
    const FirstOnPath first(programs);
    write_program(programs / "sbatch",
                  "#!/bin/bash\nprintf '%q ' sbatch \"$@\" >'" + late.string() + "'\nexec sleep 100\n");
    const auto begin = steady_clock::now();
    const auto deployed = engine_->deploy(deployment);
    EXPECT_LT(steady_clock::now() - begin, cluster_->settings().patience + milliseconds(2000));
    ASSERT_FALSE(deployed);
    EXPECT_EQ(deployed.error().code, ErrorCode::kFailed);
  }
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const auto words = read_file(late);
  ASSERT_TRUE(words) << words.error().message;
  slurm().slurm({"bash", "-c", *words});
  const auto log = deployment.volume / "attempts/1/slurm/batch.log";
  EXPECT_TRUE(eventually([&] { return read_file(log).value_or("").find("submitted anew") != std::string::npos; },
                         cluster_->limit()));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  EXPECT_EQ(starts(deployment, 0), 1);
}

TEST_P(SlurmEngineTest, AnAttemptFollowsInTheSlurmJobThatWaitsForIt) {
  const auto slurm_jobs = [&](const Deployment& deployment) {
    return slurm().slurm({"squeue", "--noheader", "--states=all", "--format=%i %T", "--name=tesser-" + deployment.job});
  };
  Deployment deployment = job(2);
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const std::string only = slurm_jobs(deployment);
  ASSERT_TRUE(engine_->vacate(deployment.job, deployment.team, 1));
  ASSERT_TRUE(engine_->vacate(deployment.job, deployment.team, 1)) << "a repeated one is none";
  deployment.attempt = 2;
  deployment.environment["TEST_ATTEMPT"] = "2";
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  EXPECT_EQ(slurm_jobs(deployment), only);

  // One of another size needs another.
  ASSERT_TRUE(engine_->vacate(deployment.job, deployment.team, 2));
  Deployment smaller = deployment;
  smaller.attempt = 3;
  smaller.environment["TEST_ATTEMPT"] = "3";
  smaller.nodes.pop_back();
  ASSERT_TRUE(engine_->deploy(smaller));
  expect_state(*engine_, smaller, LearnerState::kRunning);
  EXPECT_NE(slurm_jobs(deployment), only);
  EXPECT_TRUE(eventually([&] { return slurm_jobs(deployment).find(only) == std::string::npos; }, cluster_->limit()))
      << "the Slurm job that nobody follows in still waits: " << slurm_jobs(deployment);
  EXPECT_TRUE(is_beating(smaller, 0));
}

TEST_P(SlurmEngineTest, TheControllerIsAskedSeldomWhileAllRunAndAtOnceWhenThereIsASign) {
  EngineSettings settings = cluster_->settings();
  settings.state_directory = slurm().shared_directory() / "state";
  std::filesystem::create_directory(settings.state_directory);
  const auto of_server = make_engine(settings);
  const auto of_guardian = make_engine(settings);
  ASSERT_TRUE(of_server && of_guardian);
  Engine& guardian = **of_guardian;
  Deployment deployment = job(1);
  deployment.nodes = {"node1"};
  EXPECT_LE(guardian.good_for(deployment.job), milliseconds(500));
  ASSERT_TRUE((*of_server)->nodes());
  ASSERT_TRUE(engine_->deploy(deployment));
  const auto wait = [&](milliseconds time) {
    const auto begin = steady_clock::now();
    guardian.wait(deployment.job, deployment.team, time);
    return steady_clock::now() - begin;
  };
  const auto is_quiet = [&] {
    expect_state(guardian, deployment, LearnerState::kRunning);
    return wait(milliseconds(500)) >= milliseconds(500);
  };
  ASSERT_TRUE(eventually(is_quiet, cluster_->limit()));
  EXPECT_GE(guardian.good_for(deployment.job), milliseconds(2000));

  // What is seen of another node wakes it, too: it may be one of the job's.
  slurm().slurm({"scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=tried"});
  ASSERT_TRUE((*of_server)->nodes());
  slurm().slurm({"scontrol", "update", "NodeName=node2", "State=RESUME"});
  EXPECT_LT(wait(milliseconds(5000)), milliseconds(2500));
  ASSERT_TRUE(eventually(is_quiet, cluster_->limit()));
  // So do words of Slurm's and the end of a learner.
  slurm().slurm({"scancel", "--name=tesser-" + deployment.job});
  EXPECT_LT(wait(milliseconds(5000)), milliseconds(2500));
  expect_state(guardian, deployment, LearnerState::kEnded);
  EXPECT_LE(guardian.good_for(deployment.job), milliseconds(500));
}

TEST_P(SlurmEngineTest, ALearnerThatWaitsSaysWhyInWords) {
  Deployment large = job(2);
  large.each.millicpus = 4000;
  Deployment waiting = job(1);
  ASSERT_TRUE(engine_->deploy(large));
  expect_state(*engine_, large, LearnerState::kRunning);
  ASSERT_TRUE(engine_->deploy(waiting));
  EXPECT_TRUE(eventually(
      [&] {
        const auto seen = status(*engine_, waiting, 0);
        return seen && seen->reason == "waits until enough of its nodes is free (Slurm: Resources)";
      },
      cluster_->limit()))
      << status(*engine_, waiting, 0)->reason;
  EXPECT_EQ(status(*engine_, waiting, 0)->state, LearnerState::kWaiting);
  ASSERT_TRUE(engine_->remove(waiting.job, waiting.team, std::nullopt));
  EXPECT_TRUE(engine_->learners(waiting.job, waiting.team)->empty());
  EXPECT_EQ(starts(waiting, 0), 0);
}

TEST_P(SlurmEngineTest, AcceleratorsAreAskedForByType) {
  Deployment deployment = job(3);
  deployment.each.accelerators = {{"pretend", 1}};
  const auto nodes = engine_->nodes();
  ASSERT_TRUE(nodes);
  EXPECT_EQ(nodes->front().capacity.accelerators.at("pretend"), 2);
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const std::string used = slurm().slurm({"scontrol", "--details", "--oneliner", "show", "nodes"});
  EXPECT_THAT(used, testing::HasSubstr("GresUsed=gpu:pretend:2"));
  EXPECT_THAT(used, testing::HasSubstr("GresUsed=gpu:pretend:1"));

  Deployment impossible = job(3);
  impossible.each.accelerators = {{"pretend", 2}};
  const auto refused = engine_->deploy(impossible);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidInput) << refused.error().message;
  impossible.each.accelerators = {{"a100:1 --uid=0", 1}};
  EXPECT_EQ(engine_->deploy(impossible).error().code, ErrorCode::kInvalidInput);
}

TEST_P(SlurmEngineTest, NothingOfAJobIsReadByAShellOrAsPattern) {
  Deployment deployment = job(1);
  deployment.volume = deployment.volume / "a b'c\"d%t$(touch x)";
  std::filesystem::create_directory(deployment.volume);
  deployment.environment["TEST_VOLUME"] = deployment.volume;
  deployment.environment["-i"] = "`touch y`";
  deployment.command = {"/bin/sh", "-c", "printf '%s\n' \"$@\" >\"$TEST_VOLUME/words\"; sleep 100", "a=b", "$HOME",
                        "a  b",    ""};
  const auto deployed = engine_->deploy(deployment);
  ASSERT_TRUE(deployed) << deployed.error().message;
  expect_state(*engine_, deployment, LearnerState::kRunning);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(deployment.volume / "words"); }, cluster_->limit()));
  EXPECT_EQ(read_file(deployment.volume / "words").value_or(""), "$HOME\na  b\n\n");
  EXPECT_TRUE(std::filesystem::exists(deployment.volume / "attempts/1/learner-0.log"));
  EXPECT_FALSE(std::filesystem::exists(deployment.volume / "x"));
  for (const char* name : {"node[1-2]", "node1,node2", "--uid=0", "node 1"}) {
    Deployment odd = job(1);
    odd.nodes = {name};
    const auto refused = engine_->deploy(odd);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(refused.error().message, testing::HasSubstr(name));
  }
}

TEST_P(SlurmEngineTest, NodesSayWhyTheyTakeNothing) {
  slurm().slurm({"scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=its disk is old"});
  const auto nodes = engine_->nodes();
  slurm().slurm({"scontrol", "update", "NodeName=node2", "State=RESUME"});
  ASSERT_TRUE(nodes);
  ASSERT_EQ(nodes->size(), 2U);
  EXPECT_TRUE((*nodes)[0].is_ready);
  EXPECT_EQ((*nodes)[0].capacity.millicpus, 4000);
  EXPECT_EQ((*nodes)[0].capacity.memory_bytes, std::int64_t{4000} << 20);
  EXPECT_FALSE((*nodes)[1].is_ready);
  EXPECT_EQ((*nodes)[1].not_ready, "it is drained: its disk is old");

  EngineSettings settings = cluster_->settings();
  settings.partition = "closed";
  const auto closed = (*make_engine(settings))->nodes();
  ASSERT_TRUE(closed);
  EXPECT_EQ((*closed)[0].not_ready, "its partition closed is DOWN");
  settings.partition = "nowhere";
  const auto nowhere = (*make_engine(settings))->nodes();
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message, "Slurm has no partition 'nowhere'; it has: main, closed");
}

// A controller that is killed forgets what it has not saved yet: the job may be gone, and may not be there twice.
TEST_P(SlurmEngineTest, AJobWhoseControllerWasKilledIsWholeOrGone) {
  const Deployment deployment = job(2);
  ASSERT_TRUE(engine_->deploy(deployment));
  slurm().script({"kill-controller", slurm().cluster().string()});
  slurm().start_system();
  ASSERT_TRUE(
      eventually([&] { return bool(engine_->learners(deployment.job, deployment.team)); }, milliseconds(20000)));
  const auto is_known = [&] { return !engine_->learners(deployment.job, deployment.team)->empty(); };
  if (is_known()) {
    expect_state(*engine_, deployment, LearnerState::kRunning);
    EXPECT_EQ(starts(deployment, 0), 1);
  }
  ASSERT_TRUE(engine_->remove(deployment.job, deployment.team, std::nullopt));
  EXPECT_TRUE(
      eventually([&] { return !is_beating(deployment, 0) && !is_beating(deployment, 1); }, milliseconds(20000)));
  Deployment again = deployment;
  again.attempt = 2;
  again.environment["TEST_ATTEMPT"] = "2";
  const auto deployed = engine_->deploy(again);
  ASSERT_TRUE(deployed) << deployed.error().message;
  expect_state(*engine_, again, LearnerState::kRunning);
}

}  // namespace
}  // namespace tesser::platform
