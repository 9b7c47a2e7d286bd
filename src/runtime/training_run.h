// What a training run begins with, on one worker or on many: program, data, and the checkpoint that it goes on from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "graph/program.h"
#include "runtime/checkpoint.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/data.h"
#include "runtime/train.h"

namespace tesser::runtime {

struct TrainingRun {
  graph::Program program;
  DataSet data;
  CheckpointInfo info;          // where the run stands; `next` has a batch for each replica
  std::int64_t until_step = 0;  // it ends when so many steps are done
  std::optional<CheckpointLock> lock;
  std::optional<Checkpoint> resumed;
  std::int64_t replicas = 1;

  std::int64_t steps_per_epoch() const { return data.batches() / replicas; }
};

// Checks the options and opens program and data.
Result<TrainingRun> open_run(const TrainOptions& options);

// Locks the checkpoint directory, where one is given, and finds the checkpoint to go on from; refuses one that would
// not continue the same run.
Result<void> open_checkpoints(const TrainOptions& options, TrainReporter& reporter, TrainingRun& run);

// Bytes of the program's initial state, NAME.tesser/state.safetensors; 0 where there is none.
std::int64_t initial_state_bytes(const std::filesystem::path& program);

// The place of the first batch that the step after `steps` further ones takes.
DataPosition position_after(const TrainingRun& run, std::int64_t steps);

// What is said when a run begins, but for its memory.
TrainStart training_start(const TrainOptions& options, const TrainingRun& run);

// Under --check-nan, before an operator is blamed for it: kFailed when a sample of the batch holds NaN. Infinity may be
// meant, as in a mask. `path` names the data.
Result<void> check_batch(const DataSet& data, const std::filesystem::path& path, const CheckpointInfo& info,
                         DataPosition position);

// The end of a run whose loss is not finite.
std::string non_finite_loss(std::int64_t step, std::int64_t epoch, double loss, bool check_nan);

}  // namespace tesser::runtime
