// Arguments that the commands with a forward pass share: evaluate, run, generate.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "runtime/executor.h"

namespace tesser::cli {

struct ForwardArguments {
  std::filesystem::path program;
  std::optional<std::filesystem::path> weights;  // the program's initial values where it is not given
  int threads = 0;
};

void add_forward_arguments(CLI::App& command, ForwardArguments& arguments);

// The program's forward pass with its weights, ready to run. What people should know is printed to standard error.
Result<std::unique_ptr<runtime::Executor>> load_forward(const ForwardArguments& arguments);

}  // namespace tesser::cli
