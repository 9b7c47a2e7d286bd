#include <memory>

#include "cli/commands.h"
#include "cli/forward_arguments.h"
#include "runtime/evaluate.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser run mnist.tesser --weights run1 --input images.npy -o logits.safetensors
  tesser run mnist.tesser --weights weights.safetensors --input batch.safetensors -o logits.safetensors

The input is one batch of the forward program: a data directory, a .safetensors file with the batch values under
their names, or a .npy file where there is one value.)";

struct Arguments {
  ForwardArguments forward;
  std::filesystem::path input;
  std::filesystem::path output;
};

Result<int> run_run(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(AtomicFile output, AtomicFile::create_output(arguments.output));
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Executor> executor, load_forward(arguments.forward));
  TESSER_ASSIGN_OR_RETURN(const runtime::DataSet data,
                          runtime::DataSet::open(arguments.input, runtime::batch_values(executor->program())));
  TESSER_RETURN_IF_ERROR(runtime::run_once(*executor, data, std::move(output)));
  return 0;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "Run the forward program once and write its results");
  const auto arguments = std::make_shared<Arguments>();
  add_forward_arguments(*command, arguments->forward);
  command->add_option("--input", arguments->input, "Data directory, .safetensors or .npy file with one batch")
      ->required();
  command->add_option("-o,--output", arguments->output, "Safetensors file for the results")->required();
  command->footer(kExamples);
  command->callback([arguments, &action] { action = [arguments] { return run_run(*arguments); }; });
}

}  // namespace tesser::cli
