// What every engine must do (src/platform/engine/engine.h), as tests that run against a real system.
//
// Another engine joins so: derive an EngineCluster that starts (or finds) its system, and in a test program of its own
//
//   tesser_test(platform_engine_NAME SOURCES engine_conformance.cc NAME_conformance_test.cc USES platform_engine)
//   add_dependencies(platform_engine_NAME_test engine_actor)
//
//   INSTANTIATE_TEST_SUITE_P(Name, EngineConformance, testing::Values(EngineClusterFactory([] {
//     static const auto cluster = std::make_shared<NameCluster>();  // one for all tests: systems start slowly
//     return cluster;
//   })));
//
// Tests leave nothing behind: each has jobs of its own, which it removes. Learners are small shell commands that write
// into a volume which all nodes see.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "platform/engine/engine.h"

namespace tesser::platform {

class EngineCluster {
 public:
  virtual ~EngineCluster() = default;

  // Of the running system, which has two nodes at least.
  virtual EngineSettings settings() = 0;
  // A directory that this process and learners on every node see under the same path.
  virtual std::filesystem::path shared_directory() = 0;
  // How long a change may take to show: the start of a learner, its end, its removal.
  virtual std::chrono::milliseconds limit() = 0;
  // Within what time a learner that lives has surely beaten: it does so ten times a second.
  virtual std::chrono::milliseconds beat() { return std::chrono::milliseconds(1500); }
  // How long a learner may still run that was removed while its node began it.
  virtual std::chrono::milliseconds late() { return std::chrono::milliseconds(0); }
  // Of one learner of the tests, so small that four of them fit on a node.
  virtual Resources small_learner() = 0;

  // Ends a node as a loss of power would, and brings it back; returns when the system has been told or has seen it.
  virtual void kill_node(const std::string& name) = 0;
  virtual void mend_node(const std::string& name) = 0;
  // How long until the loss of a node shows.
  virtual std::chrono::milliseconds node_limit() { return limit(); }

  // Takes the system away from engines (its controller, API server) and brings it back, while learners go on; returns
  // false when this engine has no such thing.
  virtual bool stop_system() { return false; }
  virtual void start_system() {}
};

using EngineClusterFactory = std::function<std::shared_ptr<EngineCluster>()>;

class EngineConformance : public testing::TestWithParam<EngineClusterFactory> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // An engine object of its own, as another process would have it.
  std::unique_ptr<Engine> make();
  // A job that nobody else has. Its learners note each start in the volume and beat there until they end; `last` is
  // what a learner does after its first beat, by default: go on for ever.
  Deployment job(int learners, const std::string& last = kGoOn);
  static constexpr const char* kGoOn = "";

  // What learners left in the volume.
  int starts(const Deployment& deployment, int rank);
  bool is_beating(const Deployment& deployment, int rank, const std::string& suffix = "");
  // Whether the state of each learner of this attempt becomes `expected` within the limit; fails the test if not.
  void expect_state(Engine& engine, const Deployment& deployment, LearnerState expected);
  void expect_state(Engine& engine, const Deployment& deployment, int rank, LearnerState expected);
  std::optional<LearnerStatus> status(Engine& engine, const Deployment& deployment, int rank);
  // That nothing of the attempt runs any more and that the engine knows nothing of it.
  void expect_gone(Engine& engine, const Deployment& deployment);
  bool eventually(const std::function<bool()>& holds, std::chrono::milliseconds limit);

  // A process of its own that makes an engine and deploys; killed after `life`, if it still lives. Returns whether it
  // ended by itself.
  bool deploy_in_process_killed_after(const Deployment& deployment, std::chrono::microseconds life);

  std::shared_ptr<EngineCluster> cluster_;
  std::unique_ptr<Engine> engine_;

 private:
  std::filesystem::path directory_;
  std::vector<Deployment> jobs_;
};

}  // namespace tesser::platform
