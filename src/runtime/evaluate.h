// Runs a forward program over a data set, or once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/data.h"
#include "runtime/executor.h"

namespace tesser::runtime {

// The forward program of NAME.tesser, compiled, its values not yet written. kInvalidInput with advice when it has none.
Result<std::unique_ptr<Executor>> load_forward(const std::filesystem::path& program_directory,
                                               const ExecutorOptions& options);

struct Evaluation {
  std::vector<std::pair<std::string, double>> results;  // mean over the batches of each scalar result
  std::int64_t batches = 0;
  std::int64_t samples = 0;
  std::int64_t left_out = 0;  // samples that do not fill a batch
  double seconds = 0;
};

// kInvalidInput unless the forward program has a scalar result to average.
Result<void> check_scalar_results(const graph::Program& forward);

// Runs `forward`, whose values are written, over all full batches in order. All batches have the same size, so the mean
// over batches is the mean over samples where a result is one over its batch.
Result<Evaluation> evaluate(Executor& forward, const DataSet& data);

// Writes the state that both programs have from one executor to the other.
Result<void> copy_state(const Executor& from, Executor& to);

// Runs `forward` on the first batch of the data and writes all its results to a safetensors file. kInvalidInput unless
// the data is exactly one batch.
Result<void> run_once(Executor& forward, const DataSet& data, const std::filesystem::path& output);

}  // namespace tesser::runtime
