#include "engine_conformance.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "base/file.h"

extern char** environ;

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Notes its start, then beats. The shell's only
// children are short sleeps: a learner that is stopped in one leaves it behind for a moment, which beats nothing.
constexpr const char* kLearner = R"(
name=$TEST_VOLUME/$TEST_ATTEMPT-$TESSER_RANK
echo start >> $name.starts
echo beat >> $name.beats
eval "$TEST_LAST"
while :; do echo beat >> $name.beats; sleep 0.1; done
)";

std::uintmax_t size_of(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

std::filesystem::path file_of(const Deployment& deployment, int rank, const std::string& suffix) {
  return deployment.volume / (std::to_string(deployment.attempt) + "-" + std::to_string(rank) + suffix);
}

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineConformance);

void EngineConformance::SetUp() {
  static std::atomic<int> made{0};
  ::setenv("TESSER_TEST_OF_THE_SERVER", "not for learners", 1);
  cluster_ = GetParam()();
  ASSERT_NE(cluster_, nullptr);
  directory_ =
      cluster_->shared_directory() / ("conformance-" + std::to_string(::getpid()) + "-" + std::to_string(++made));
  std::filesystem::create_directories(directory_);
  engine_ = make();
  ASSERT_NE(engine_, nullptr);
  // A test before this one may have taken a node, and a busy machine keeps one from saying that it is there.
  ASSERT_TRUE(eventually(
      [&] {
        const auto nodes = engine_->nodes();
        return nodes && std::all_of(nodes->begin(), nodes->end(), [](const Node& node) { return node.is_ready; });
      },
      cluster_->node_limit()));
}

void EngineConformance::TearDown() {
  if (engine_ != nullptr) {
    for (const Deployment& each : jobs_) {
      // As a guardian does: tries on. A system that has just been away may need longer than an engine's patience.
      Result<void> removed;
      EXPECT_TRUE(eventually(
          [&] {
            removed = engine_->remove(each.job, each.team, std::nullopt);
            return bool(removed);
          },
          cluster_->node_limit()))
          << removed.error().message;
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::unique_ptr<Engine> EngineConformance::make() {
  auto engine = make_engine(cluster_->settings());
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

Deployment EngineConformance::job(int learners, const std::string& last) {
  Deployment deployment;
  deployment.job = directory_.filename().string() + "-" + std::to_string(jobs_.size() + 1);
  deployment.team = "conformance";
  deployment.attempt = 1;
  deployment.command = {"/bin/sh", "-c", kLearner};
  deployment.volume = directory_ / deployment.job;
  deployment.each = cluster_->small_learner();
  std::filesystem::create_directories(deployment.volume);
  std::filesystem::permissions(deployment.volume, std::filesystem::perms::all);
  deployment.environment = {{"TEST_VOLUME", deployment.volume.string()}, {"TEST_ATTEMPT", "1"}, {"TEST_LAST", last}};
  const auto nodes = engine_->nodes();
  EXPECT_TRUE(nodes) << nodes.error().message;
  for (int rank = 0; nodes && rank < learners; ++rank) {
    deployment.nodes.push_back((*nodes)[static_cast<std::size_t>(rank) % nodes->size()].name);
  }
  jobs_.push_back(deployment);
  return deployment;
}

int EngineConformance::starts(const Deployment& deployment, int rank) {
  std::ifstream file(file_of(deployment, rank, ".starts"));
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    ++count;
  }
  return count;
}

bool EngineConformance::is_beating(const Deployment& deployment, int rank, const std::string& suffix) {
  const std::filesystem::path beats = file_of(deployment, rank, suffix + ".beats");
  const std::uintmax_t before = size_of(beats);
  return eventually([&] { return size_of(beats) > before; }, cluster_->beat());
}

bool EngineConformance::eventually(const std::function<bool()>& holds, milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  while (!holds()) {
    if (steady_clock::now() > until) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

std::optional<LearnerStatus> EngineConformance::status(Engine& engine, const Deployment& deployment, int rank) {
  const auto learners = engine.learners(deployment.job, deployment.team);
  EXPECT_TRUE(learners) << learners.error().message;
  std::optional<LearnerStatus> found;
  for (const LearnerStatus& each : learners ? *learners : std::vector<LearnerStatus>{}) {
    if (each.attempt == deployment.attempt && each.rank == rank) {
      EXPECT_FALSE(found) << "learner " << rank << " is there twice";
      found = each;
    }
  }
  return found;
}

void EngineConformance::expect_state(Engine& engine, const Deployment& deployment, int rank, LearnerState expected) {
  std::optional<LearnerStatus> seen;
  EXPECT_TRUE(eventually(
      [&] {
        seen = status(engine, deployment, rank);
        return seen && seen->state == expected;
      },
      expected == LearnerState::kLost ? cluster_->node_limit() : cluster_->limit()))
      << "learner " << rank << " of " << deployment.job << " is "
      << (seen ? std::to_string(static_cast<int>(seen->state)) + " (" + seen->reason + ")" : "unknown") << ", expected "
      << static_cast<int>(expected);
}

void EngineConformance::expect_state(Engine& engine, const Deployment& deployment, LearnerState expected) {
  for (std::size_t rank = 0; rank < deployment.nodes.size(); ++rank) {
    expect_state(engine, deployment, static_cast<int>(rank), expected);
  }
}

void EngineConformance::expect_gone(Engine& engine, const Deployment& deployment) {
  const auto learners = engine.learners(deployment.job, deployment.team);
  ASSERT_TRUE(learners) << learners.error().message;
  for (const LearnerStatus& each : *learners) {
    EXPECT_NE(each.attempt, deployment.attempt) << "learner " << each.rank << " is still known";
  }
  std::vector<std::uintmax_t> before;
  for (std::size_t rank = 0; rank < deployment.nodes.size(); ++rank) {
    before.push_back(size_of(file_of(deployment, static_cast<int>(rank), ".beats")));
  }
  // One that lives beats ten times a second; where the machine is too busy for that, a longer wait would prove no more.
  std::this_thread::sleep_for(std::min(cluster_->beat(), milliseconds(500)));
  for (std::size_t rank = 0; rank < before.size(); ++rank) {
    EXPECT_EQ(size_of(file_of(deployment, static_cast<int>(rank), ".beats")), before[rank])
        << "learner " << rank << " still runs";
  }
}

bool EngineConformance::deploy_in_process_killed_after(const Deployment& deployment, std::chrono::microseconds life) {
  const std::filesystem::path settings_file = directory_ / "settings.json";
  const std::filesystem::path deployment_file = directory_ / "deployment.json";
  EXPECT_TRUE(write_file_atomically(settings_file, to_json(cluster_->settings())));
  EXPECT_TRUE(write_file_atomically(deployment_file, to_json(deployment)));
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "engine_actor";
  std::string arguments[] = {program, settings_file.string(), deployment_file.string()};
  char* words[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), nullptr};
  pid_t process = 0;
  EXPECT_EQ(::posix_spawn(&process, program.c_str(), nullptr, nullptr, words, environ), 0) << program;
  std::this_thread::sleep_for(life);
  ::kill(process, SIGKILL);
  int end = 0;
  ::waitpid(process, &end, 0);
  return WIFEXITED(end);
}

TEST_P(EngineConformance, HasNodes) {
  const auto nodes = engine_->nodes();
  ASSERT_TRUE(nodes) << nodes.error().message;
  EXPECT_GE(nodes->size(), 2U);
  std::set<std::string> names;
  for (const Node& node : *nodes) {
    EXPECT_TRUE(node.is_ready) << node.name << ": " << node.not_ready;
    EXPECT_GT(node.capacity.millicpus, 0) << node.name;
    EXPECT_GT(node.capacity.memory_bytes, 0) << node.name;
    names.insert(node.name);
  }
  EXPECT_EQ(names.size(), nodes->size());
}

TEST_P(EngineConformance, DeploysAllLearnersOnTheirNodes) {
  const Deployment deployment = job(3);
  const auto deployed = engine_->deploy(deployment);
  ASSERT_TRUE(deployed) << deployed.error().message;
  expect_state(*engine_, deployment, LearnerState::kRunning);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(is_beating(deployment, rank)) << rank;
    EXPECT_EQ(starts(deployment, rank), 1) << rank;
    const auto seen = status(*engine_, deployment, rank);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->node, deployment.nodes[static_cast<std::size_t>(rank)]);
  }
  const auto removed = engine_->remove(deployment.job, deployment.team, std::nullopt);
  ASSERT_TRUE(removed) << removed.error().message;
  expect_gone(*engine_, deployment);
}

TEST_P(EngineConformance, TheSystemChoosesNodesThatAreNotNamed) {
  Deployment deployment = job(2);
  deployment.nodes = {"", ""};
  const auto deployed = engine_->deploy(deployment);
  ASSERT_TRUE(deployed) << deployed.error().message;
  expect_state(*engine_, deployment, LearnerState::kRunning);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(is_beating(deployment, rank));
    EXPECT_NE(status(*engine_, deployment, rank)->node, "");
  }
}

TEST_P(EngineConformance, LearnersHaveTheirEnvironmentAndNotTheServers) {
  Deployment deployment = job(2, "env > $name.environment.new; mv $name.environment.new $name.environment");
  deployment.environment["TEST_ODD"] = "a 'b' \"c\" $d \\ e\nf=g";
  ASSERT_TRUE(engine_->deploy(deployment));
  for (int rank = 0; rank < 2; ++rank) {
    const auto path = file_of(deployment, rank, ".environment");
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path); }, cluster_->limit()));
    const auto text = read_file(path);
    ASSERT_TRUE(text);
    EXPECT_NE(("\n" + *text).find("\nTESSER_RANK=" + std::to_string(rank) + "\n"), std::string::npos) << *text;
    EXPECT_NE(text->find("TEST_ODD=a 'b' \"c\" $d \\ e\nf=g\n"), std::string::npos) << *text;
    EXPECT_EQ(text->find("TESSER_TEST_OF_THE_SERVER"), std::string::npos) << *text;
  }
}

TEST_P(EngineConformance, DeploysNoneWhenOneCannotBe) {
  Deployment deployment = job(3);
  deployment.nodes[2] = "no-such-node";
  const auto deployed = engine_->deploy(deployment);
  ASSERT_FALSE(deployed);
  EXPECT_EQ(deployed.error().code, ErrorCode::kInvalidInput) << deployed.error().message;
  EXPECT_NE(deployed.error().message.find("no-such-node"), std::string::npos) << deployed.error().message;
  expect_gone(*engine_, deployment);
}

TEST_P(EngineConformance, ARepeatedDeployStartsNothingTwice) {
  const Deployment deployment = job(2);
  ASSERT_TRUE(engine_->deploy(deployment));
  const auto other = make();
  for (Engine* engine : {engine_.get(), other.get(), other.get()}) {
    const auto again = engine->deploy(deployment);
    EXPECT_TRUE(again) << again.error().message;
  }
  expect_state(*other, deployment, LearnerState::kRunning);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(is_beating(deployment, rank));
    EXPECT_EQ(starts(deployment, rank), 1) << rank;
  }
}

TEST_P(EngineConformance, AnEndedAttemptIsNotStartedAgainByARepeatedDeploy) {
  const Deployment deployment = job(2, "exit 0");
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kEnded);
  const auto again = make()->deploy(deployment);
  EXPECT_TRUE(again) << again.error().message;
  expect_state(*engine_, deployment, LearnerState::kEnded);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(starts(deployment, rank), 1) << rank;
  }
}

TEST_P(EngineConformance, DeploysWhatADeadProcessBeganToDeploy) {
  for (const int life : {1000, 4000, 8000, 20000, 200000}) {
    const Deployment deployment = job(3);
    deploy_in_process_killed_after(deployment, std::chrono::microseconds(life));
    const auto deployed = engine_->deploy(deployment);
    ASSERT_TRUE(deployed) << deployed.error().message;
    expect_state(*engine_, deployment, LearnerState::kRunning);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(is_beating(deployment, rank)) << rank << " after " << life;
      EXPECT_EQ(starts(deployment, rank), 1) << rank << " after " << life;
    }
    const auto removed = engine_->remove(deployment.job, deployment.team, std::nullopt);
    ASSERT_TRUE(removed) << removed.error().message;
  }
}

TEST_P(EngineConformance, RemovesWhatADeadProcessBeganToDeploy) {
  std::vector<Deployment> all;
  for (const int life : {1000, 2000, 3000, 5000, 8000, 15000, 100000}) {
    all.push_back(job(3));
    deploy_in_process_killed_after(all.back(), std::chrono::microseconds(life));
    const auto removed = engine_->remove(all.back().job, all.back().team, std::nullopt);
    ASSERT_TRUE(removed) << removed.error().message;
  }
  // Whatever had begun is gone, and nothing of it begins later.
  const auto beats = [&] {
    std::vector<std::uintmax_t> found;
    for (const Deployment& each : all) {
      for (int rank = 0; rank < 3; ++rank) {
        found.push_back(size_of(file_of(each, rank, ".beats")));
      }
    }
    return found;
  };
  std::this_thread::sleep_for(cluster_->beat() / 2);
  EXPECT_TRUE(eventually(
      [&] {
        const std::vector<std::uintmax_t> sizes = beats();
        std::this_thread::sleep_for(cluster_->beat());
        return sizes == beats();
      },
      cluster_->late()));
  for (const Deployment& each : all) {
    const auto learners = engine_->learners(each.job, each.team);
    ASSERT_TRUE(learners);
    EXPECT_TRUE(learners->empty());
  }
}

TEST_P(EngineConformance, KnowsLearnersOfEveryAttemptAndRemovesOne) {
  const Deployment first = job(2);
  Deployment second = first;
  second.attempt = 2;
  second.environment["TEST_ATTEMPT"] = "2";
  ASSERT_TRUE(engine_->deploy(first));
  ASSERT_TRUE(engine_->deploy(second));
  expect_state(*engine_, first, LearnerState::kRunning);
  expect_state(*engine_, second, LearnerState::kRunning);
  EXPECT_EQ(make()->learners(first.job, first.team)->size(), 4U);

  const auto removed = engine_->remove(first.job, first.team, 1);
  ASSERT_TRUE(removed) << removed.error().message;
  expect_gone(*engine_, first);
  expect_state(*engine_, second, LearnerState::kRunning);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(is_beating(second, rank)) << rank;
    EXPECT_EQ(starts(second, rank), 1) << rank;
  }
  ASSERT_TRUE(engine_->remove(first.job, first.team, 1)) << "a repeated removal is none";
  ASSERT_TRUE(make()->remove(second.job, second.team, std::nullopt));
  expect_gone(*engine_, second);
}

TEST_P(EngineConformance, AnAttemptFollowsOneThatWasVacated) {
  Deployment deployment = job(2);
  ASSERT_TRUE(engine_->deploy(deployment));
  for (int attempt = 2; attempt <= 3; ++attempt) {
    expect_state(*engine_, deployment, LearnerState::kRunning);
    const auto vacated = engine_->vacate(deployment.job, deployment.team, deployment.attempt);
    ASSERT_TRUE(vacated) << vacated.error().message;
    const Deployment before = deployment;
    deployment.attempt = attempt;
    deployment.environment["TEST_ATTEMPT"] = std::to_string(attempt);
    const auto other = make();
    const auto deployed = other->deploy(deployment);
    ASSERT_TRUE(deployed) << deployed.error().message;
    ASSERT_TRUE(engine_->deploy(deployment));
    expect_state(*engine_, deployment, LearnerState::kRunning);
    expect_gone(*other, before);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(is_beating(deployment, rank)) << rank;
      EXPECT_EQ(starts(deployment, rank), 1) << rank;
    }
  }
  const auto removed = make()->remove(deployment.job, deployment.team, deployment.attempt);
  ASSERT_TRUE(removed) << removed.error().message;
  expect_gone(*engine_, deployment);
}

TEST_P(EngineConformance, RemovesNothingOfOtherJobs) {
  const Deployment removed = job(2);
  Deployment longer = job(2);
  longer.job = removed.job + "0";  // whose name begins alike
  ASSERT_TRUE(engine_->deploy(removed));
  ASSERT_TRUE(engine_->deploy(longer));
  expect_state(*engine_, removed, LearnerState::kRunning);
  expect_state(*engine_, longer, LearnerState::kRunning);
  ASSERT_TRUE(engine_->remove(removed.job, removed.team, std::nullopt));
  expect_gone(*engine_, removed);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(is_beating(longer, rank)) << rank;
  }
  EXPECT_TRUE(engine_->remove(longer.job, longer.team, std::nullopt));
  expect_gone(*engine_, longer);
}

TEST_P(EngineConformance, RemovesDescendantsInSessionsOfTheirOwn) {
  const Deployment deployment = job(1, R"(
setsid sh -c 'while :; do echo beat >> '$name'-child.beats; sleep 0.1; done' < /dev/null > /dev/null 2>&1 &
)");
  ASSERT_TRUE(engine_->deploy(deployment));
  ASSERT_TRUE(eventually([&] { return size_of(file_of(deployment, 0, "-child.beats")) > 0; }, cluster_->limit()));
  EXPECT_TRUE(is_beating(deployment, 0, "-child"));
  ASSERT_TRUE(engine_->remove(deployment.job, deployment.team, std::nullopt));
  EXPECT_FALSE(is_beating(deployment, 0, "-child"));
  expect_gone(*engine_, deployment);
}

TEST_P(EngineConformance, SeesTheEndOfALearner) {
  const Deployment deployment = job(3, "case $TESSER_RANK in 0) exit 0;; 1) sleep 1; exit 3;; esac");
  ASSERT_TRUE(engine_->deploy(deployment));
  const auto begin = steady_clock::now();
  while (steady_clock::now() - begin < cluster_->limit()) {
    const auto seen = status(*engine_, deployment, 1);
    if (seen && seen->state == LearnerState::kEnded) {
      break;
    }
    engine_->wait(deployment.job, deployment.team, milliseconds(2000));
  }
  expect_state(*engine_, deployment, 0, LearnerState::kEnded);
  expect_state(*engine_, deployment, 1, LearnerState::kEnded);
  expect_state(*make(), deployment, 1, LearnerState::kEnded);
  expect_state(*engine_, deployment, 2, LearnerState::kRunning);
  EXPECT_TRUE(is_beating(deployment, 2));
}

TEST_P(EngineConformance, SeesALearnerThatWasKilled) {
  const Deployment deployment = job(2, "if [ $TESSER_RANK = 0 ]; then kill -9 $$; fi");
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, 0, LearnerState::kEnded);
  expect_state(*engine_, deployment, 1, LearnerState::kRunning);
}

TEST_P(EngineConformance, KnowsNothingOfJobsThatNeverWere) {
  const auto learners = engine_->learners("never-was", "conformance");
  ASSERT_TRUE(learners) << learners.error().message;
  EXPECT_TRUE(learners->empty());
  const auto removed = engine_->remove("never-was", "conformance", std::nullopt);
  EXPECT_TRUE(removed) << removed.error().message;
  const auto begin = steady_clock::now();
  engine_->wait("never-was", "conformance", milliseconds(300));
  EXPECT_LT(steady_clock::now() - begin, cluster_->limit());
}

TEST_P(EngineConformance, LearnersOfAKilledNodeAreLostAndTheNodeIsNotReady) {
  const Deployment deployment = job(2);
  ASSERT_TRUE(engine_->deploy(deployment));
  expect_state(*engine_, deployment, LearnerState::kRunning);
  const std::string node = deployment.nodes[1];
  const auto is_ready = [&] {
    const auto nodes = engine_->nodes();
    const auto found = std::find_if(nodes->begin(), nodes->end(), [&](const Node& each) { return each.name == node; });
    EXPECT_TRUE(found == nodes->end() || found->is_ready || !found->not_ready.empty());
    return found != nodes->end() && found->is_ready;
  };
  cluster_->kill_node(node);
  expect_state(*engine_, deployment, 1, LearnerState::kLost);
  expect_state(*engine_, deployment, 0, LearnerState::kRunning);
  EXPECT_TRUE(eventually([&] { return !is_ready(); }, cluster_->node_limit()));

  // The job's learners can be removed although one of them is out of reach; should the node come back, nothing of them
  // goes on there.
  const auto removed = engine_->remove(deployment.job, deployment.team, std::nullopt);
  EXPECT_TRUE(removed) << removed.error().message;
  cluster_->mend_node(node);
  EXPECT_TRUE(eventually(is_ready, cluster_->node_limit()));
  EXPECT_TRUE(
      eventually([&] { return engine_->learners(deployment.job, deployment.team)->empty(); }, cluster_->node_limit()));
  expect_gone(*engine_, deployment);

  // And it takes learners again.
  const Deployment next = job(2);
  const auto deployed = engine_->deploy(next);
  ASSERT_TRUE(deployed) << deployed.error().message;
  expect_state(*engine_, next, LearnerState::kRunning);
}

TEST_P(EngineConformance, SaysSoWhenTheSystemIsAway) {
  const Deployment running = job(2);
  ASSERT_TRUE(engine_->deploy(running));
  expect_state(*engine_, running, LearnerState::kRunning);
  const Deployment refused = job(2);
  if (!cluster_->stop_system()) {
    GTEST_SKIP() << engine_->name() << " is this machine: it is never away";
  }
  // Most of these wait for as long as they may.
  EngineSettings hasty = cluster_->settings();
  hasty.patience = std::min(hasty.patience, milliseconds(1000));
  const auto made = make_engine(hasty);
  ASSERT_TRUE(made) << made.error().message;
  Engine& other = **made;
  const milliseconds most = cluster_->settings().patience + milliseconds(3000);
  const auto expect_failure = [&](const char* what, const auto& call) {
    const auto begin = steady_clock::now();
    const auto outcome = call();
    EXPECT_LT(steady_clock::now() - begin, most) << what;
    ASSERT_FALSE(outcome) << what;
    EXPECT_EQ(outcome.error().code, ErrorCode::kFailed) << what << ": " << outcome.error().message;
  };
  expect_failure("nodes", [&] { return other.nodes(); });
  expect_failure("deploy", [&] { return other.deploy(refused); });
  expect_failure("learners", [&] { return engine_->learners(running.job, running.team); });
  expect_failure("remove", [&] { return other.remove(running.job, running.team, std::nullopt); });
  const auto begin = steady_clock::now();
  engine_->wait(running.job, running.team, milliseconds(200));
  EXPECT_LT(steady_clock::now() - begin, most);
  cluster_->start_system();

  // Learners went on, and the same engine object goes on.
  EXPECT_TRUE(eventually([&] { return bool(engine_->learners(running.job, running.team)); }, cluster_->node_limit()));
  expect_state(*engine_, running, LearnerState::kRunning);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(is_beating(running, rank));
    EXPECT_EQ(starts(running, rank), 1);
  }
}

}  // namespace tesser::platform
