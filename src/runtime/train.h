// The training loop: program, data and checkpoints in; events out. It prints nothing and handles no signals; the
// command does.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/evaluate.h"
#include "runtime/executor.h"

namespace tesser::runtime {

struct TrainOptions {
  std::filesystem::path program;  // NAME.tesser
  std::filesystem::path data;
  // The run ends after so many steps or epochs, counted from the program's beginning and not from where a run resumes;
  // at most one is given. One epoch where neither is.
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> epochs;
  std::optional<std::filesystem::path> checkpoint;  // directory; a checkpoint is written at the end in any case
  std::int64_t every = 1000;                        // steps between checkpoints
  int keep = 2;                                     // complete checkpoints that stay
  bool resume = false;               // go on from the newest complete checkpoint, or begin where there is none
  std::optional<std::int64_t> seed;  // 0, or the checkpoint's
  bool shuffle = true;               // a resumed run does as its checkpoint says
  int threads = 0;                   // 0: all processors
  bool check_nan = false;
  bool profile = false;  // measure each operator's time
  // Of train_distributed(): as many copies of the program take a batch each and meet in a hub. A step then takes so
  // many batches.
  std::int64_t replicas = 1;
  std::optional<std::filesystem::path>
      evaluate;  // data directory for the forward program after each epoch and at the end
};

struct TrainStart {
  std::string program;
  std::int64_t step = 0;        // steps done so far
  std::int64_t until_step = 0;  // the run ends when so many are done
  std::int64_t epoch = 0;       // from 0
  std::int64_t batches_per_epoch = 0;
  std::int64_t batch_size = 0;
  std::int64_t samples = 0;
  std::int64_t left_out = 0;  // samples an epoch leaves out
  std::int64_t seed = 0;
  int threads = 0;
  std::optional<std::filesystem::path> resumed_from;
  std::int64_t predicted_peak_bytes = 0;  // of the worker that needs most
  int workers = 1;                        // of all replicas
  std::int64_t replicas = 1;
  std::vector<std::string> paths;  // how workers reach each other, each way once: "shared memory (same machine)"
};

struct StepReport {
  std::int64_t step = 0;   // steps done, this one included
  std::int64_t epoch = 0;  // from 0
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;
  std::vector<double> learning_rates;  // one a schedule of the program
  double seconds = 0;                  // waiting for the data included
};

// One worker of several.
struct WorkerSummary {
  int replica = 0;
  int worker = 0;  // of the replica
  std::string host;
  double compute_seconds = 0;   // of all steps, waiting for the data included
  double waiting_seconds = 0;   // for other workers
  double transfer_seconds = 0;  // in calls that copy tensors for other workers or hand them over
  std::int64_t sent_bytes = 0;
  std::int64_t predicted_peak_bytes = 0;  // tensor storage, receive buffers included
  std::int64_t peak_bytes = 0;
  std::int64_t scratch_bytes = 0;
  std::int64_t unplanned_allocations = 0;
  std::int64_t unplanned_bytes = 0;
  std::int64_t copied_gradient_bytes = 0;  // of a replica, in its last step: to where the hub reads them
  std::int64_t resident_peak_bytes = 0;    // of the process
};

struct TrainEnd {
  std::int64_t steps = 0;         // in this run
  std::int64_t step = 0;          // in all
  double seconds = 0;             // steps, evaluations and waiting for checkpoints
  double samples_per_second = 0;  // over the steps' time
  MemoryReport memory;
  std::int64_t resident_peak_bytes = 0;  // of the process
  bool interrupted = false;              // ended because it was asked to
  std::optional<double> final_loss;
  std::optional<std::filesystem::path> checkpoint;  // the last complete one
  std::vector<OperatorTime> operators;              // under TrainOptions::profile; of several workers the first one's
  std::vector<WorkerSummary> workers;  // of several, replica after replica; `memory` then has the largest of each
};

// What the loop reports, on the thread that runs it. A report that takes long delays the next step.
class TrainReporter {
 public:
  virtual ~TrainReporter() = default;
  virtual void started(const TrainStart& start) = 0;
  virtual void stepped(const StepReport& report) = 0;
  virtual void evaluated(std::int64_t step, std::int64_t epoch, const Evaluation& evaluation) = 0;
  virtual void checkpoint_written(const CheckpointWritten& written) = 0;
  virtual void note(const std::string& message) = 0;
  virtual void ended(const TrainEnd& end) = 0;
};

// Trains until the options' end, or, once `stop` is true, to the end of the step in hand. Same program, data and
// options give the same numbers to the bit, however often the run was broken and resumed. kFailed when a step fails,
// its loss is not finite or a checkpoint cannot be written; complete checkpoints are kept in each case.
Result<TrainEnd> train(const TrainOptions& options, TrainReporter& reporter, const std::atomic<bool>& stop);

}  // namespace tesser::runtime
