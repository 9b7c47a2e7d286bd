#include "cli/forward_arguments.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/output.h"
#include "runtime/evaluate.h"
#include "runtime/weights.h"

namespace tesser::cli {

void add_forward_arguments(CLI::App& command, ForwardArguments& arguments) {
  command.add_option("program", arguments.program, "Program directory NAME.tesser with a forward program")->required();
  command.add_option("--weights", arguments.weights,
                     "Checkpoint directory or safetensors file (the program's initial values where it is not given)");
  command.add_option("--threads", arguments.threads, "Threads to compute with (0: all processors)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

Result<std::unique_ptr<runtime::Executor>> load_forward(const ForwardArguments& arguments) {
  runtime::ExecutorOptions options;
  options.threads = arguments.threads;
  TESSER_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Executor> executor,
                          runtime::load_forward(arguments.program, options));
  if (!arguments.weights) {
    TESSER_RETURN_IF_ERROR(runtime::write_initial_state(*executor, arguments.program));
    return executor;
  }
  std::vector<std::string> notes;
  TESSER_ASSIGN_OR_RETURN(const runtime::Weights weights, runtime::Weights::open(*arguments.weights, notes));
  for (const std::string& note : notes) {
    print_message("tesser: {}\n", note);
  }
  TESSER_RETURN_IF_ERROR(runtime::write_weights(*executor, arguments.program, weights));
  return executor;
}

}  // namespace tesser::cli
