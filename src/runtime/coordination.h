// The process that leads a run of several workers (coordinator.h): prepares and starts it (coordinator_start.cc), then
// follows its steps, evaluations, checkpoints and losses to the end (coordinator.cc). Internal to this folder.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "control/control_http.h"
#include "hub/hub.h"
#include "runtime/coordinator.h"
#include "runtime/distributed_checkpoint.h"
#include "runtime/run_directory.h"
#include "runtime/training_run.h"
#include "runtime/worker_process.h"
#include "runtime/worker_table.h"

namespace tesser::runtime {

class Coordinator {
 public:
  Coordinator(const TrainOptions& options, const DistributedOptions& distributed, TrainReporter& reporter,
              const std::atomic<bool>& stop)
      : options_(options), distributed_(distributed), reporter_(reporter), stop_(stop) {}

  Result<TrainEnd> run();

 private:
  Result<void> prepare();
  Result<void> prepare_evaluation();
  Result<void> prepare_lock();
  Result<void> prepare_workers();
  WorkerTask task() const;
  Result<ChosenPlan> choose_plan() const;
  Result<void> describe_clipping(const ChosenPlan& chosen, std::vector<WorkerTask>& tasks) const;
  Result<void> prepare_hub();
  Result<void> start_workers();
  Result<void> listen();
  Result<void> start_remote_workers();
  Result<void> lead();
  Result<void> check_workers();
  Result<void> check_joined();
  void report_start();
  void remove_mark();
  Result<void> check_traces() const;
  void allow_steps();
  Result<void> report_steps(std::int64_t until = std::numeric_limits<std::int64_t>::max());
  Result<void> complete_checkpoints();
  void report_evaluations();
  void dismiss_workers(bool failed);
  std::filesystem::path trace_file(std::size_t worker) const;
  Result<void> write_trace();
  TrainEnd ending() const;
  std::int64_t epoch_of(std::int64_t step) const {  // of the step that made the count so large
    return position_after(*run_, step - 1 - run_->info.step).epoch;
  }
  std::string advice() const;  // how to go on after a failure

  const TrainOptions& options_;
  const DistributedOptions& distributed_;
  TrainReporter& reporter_;
  const std::atomic<bool>& stop_;

  std::optional<TrainingRun> run_;
  std::optional<graph::Program> forward_;  // what is evaluated
  std::optional<RunDirectory> directory_;
  std::optional<std::filesystem::path> mark_;  // a file in the checkpoint directory, until all workers have seen it
  std::optional<AtomicFile> trace_;            // opened before the first step, so that a wrong name is refused there
  int parts_ = 0;                              // workers of each replica
  int workers_ = 0;                            // of all
  std::string hub_url_;
  std::unique_ptr<hub::Hub> hub_;  // of replicas; null where another is used. Outlives the workers
  SharedState shared_;
  std::optional<ShardCollection> shards_;
  std::optional<WorkerTable> table_;  // before the server, which uses it
  std::unique_ptr<control::ControlServer> server_;
  std::string token_;
  std::vector<std::string> urls_;         // of this coordinator, by worker
  std::vector<WorkerProcess> processes_;  // by worker; none when others start them

  std::map<int, std::chrono::steady_clock::time_point>
      stopped_;  // local workers that have not joined, and since when they are stopped

  std::chrono::steady_clock::time_point began_;
  bool started_ = false;
  bool final_ = false;
  std::int64_t allowed_ = 0;                  // workers may run until so many steps are done
  std::int64_t reported_ = 0;                 // steps done by all
  std::deque<WorkerStep> unreported_;         // done by all
  std::deque<WorkerEvaluation> evaluations_;  // made by all, not reported
  double step_seconds_ = 0;
  double recent_seconds_ = 0;  // of a step
  std::optional<double> loss_;
  std::optional<std::filesystem::path> last_checkpoint_;
};

}  // namespace tesser::runtime
