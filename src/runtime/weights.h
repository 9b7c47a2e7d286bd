// Puts values into an executor: initial ones from a program directory, trained ones from a checkpoint or a file with
// the names of state_dict().
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/safetensors.h"
#include "base/tensor.h"
#include "runtime/checkpoint.h"
#include "runtime/executor.h"

namespace tesser::runtime {

// Trained parameters and persistent buffers. Immutable, move-only.
class Weights {
 public:
  // `path` is a safetensors file, a checkpoint directory (its newest complete checkpoint is taken) or one step-N
  // directory. What people should know is appended to `notes`.
  static Result<Weights> open(const std::filesystem::path& path, std::vector<std::string>& notes);

  // Where they come from, for messages.
  const std::filesystem::path& path() const { return path_; }
  // By the value's name or an alias; nothing when there is none.
  std::optional<TensorView> find(const StateValue& value) const;

 private:
  std::filesystem::path path_;
  std::variant<SafetensorsFile, Checkpoint> source_;
};

// Writes the program's initial state and constants (NAME.tesser/state.safetensors) into the executor. kNotFound when
// the program needs the file and was captured without it.
Result<void> write_initial_state(Executor& executor, const std::filesystem::path& program_directory);

// Writes every state value of the checkpoint, and the program's constants. The checkpoint must have been written with
// this program: a value that is missing or has another type is kInvalidInput.
Result<void> write_checkpoint_state(Executor& executor, const std::filesystem::path& program_directory,
                                    const Checkpoint& checkpoint);

// Writes the parameters and persistent buffers from `weights`, and constants and other buffers from the program
// directory.
Result<void> write_weights(Executor& executor, const std::filesystem::path& program_directory, const Weights& weights);

}  // namespace tesser::runtime
