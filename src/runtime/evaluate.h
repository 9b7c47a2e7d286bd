// Runs a forward program over a data set, or once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "runtime/data.h"
#include "runtime/executor.h"
#include "runtime/rectangle.h"

namespace tesser::runtime {

// The forward program of NAME.tesser. kInvalidInput with advice when it has none.
Result<graph::Program> read_forward(const std::filesystem::path& program_directory);

// The same, compiled, its values not yet written.
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

// What a program, whole or of one worker, takes of each batch value; nothing of those that it does not have.
std::vector<std::optional<Rectangle>> batch_parts(const graph::Program& program, const DataSet& data);
// Where the executor takes those parts.
std::vector<MutableTensorView> batch_memory(Executor& executor, const DataSet& data);

// Runs `forward`, whose values are written, over all full batches in order. All batches have the same size, so the mean
// over batches is the mean over samples where a result is one over its batch. Of a lowered program all workers must do
// it at once.
Result<Evaluation> evaluate(Executor& forward, const DataSet& data);

// Writes the state that both programs have from one executor to the other.
Result<void> copy_state(const Executor& from, Executor& to);

// Runs `forward` on the first batch of the data and writes all its results to a safetensors file. kInvalidInput unless
// the data is exactly one batch.
Result<void> run_once(Executor& forward, const DataSet& data, AtomicFile output);

}  // namespace tesser::runtime
