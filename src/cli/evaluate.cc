#include "runtime/evaluate.h"
#include "cli/output.h"

#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/forward_arguments.h"
#include "cli/reporters.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser evaluate mnist.tesser --weights run1 --data data/check
  tesser evaluate mnist.tesser --weights weights.safetensors --data data/check --json

Runs the forward program over all full batches and averages its scalar results.)";

struct Arguments {
  ForwardArguments forward;
  std::filesystem::path data;
  bool json = false;
};

Result<int> run_evaluate(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Executor> executor, load_forward(arguments.forward));
  TESSER_RETURN_IF_ERROR(runtime::check_scalar_results(executor->program()));
  TESSER_ASSIGN_OR_RETURN(const runtime::DataSet data,
                          runtime::DataSet::open(arguments.data, runtime::batch_values(executor->program())));
  TESSER_ASSIGN_OR_RETURN(const runtime::Evaluation evaluation, runtime::evaluate(*executor, data));
  if (arguments.json) {
    print_output(
        "{{\"event\":\"evaluation\",\"results\":{},\"batches\":{},\"samples\":{},\"left_out\":{},\"seconds\":{}}}\n",
        results_json(evaluation.results), evaluation.batches, evaluation.samples, evaluation.left_out,
        json_number(evaluation.seconds));
  } else {
    print_output(
        "{} ({} samples{})\n", results_text(evaluation), evaluation.samples,
        evaluation.left_out > 0 ? fmt::format("; {} do not fill a batch and are left out", evaluation.left_out) : "");
  }
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("evaluate", "Average the forward program's scalar results over a data directory");
  const auto arguments = std::make_shared<Arguments>();
  add_forward_arguments(*command, arguments->forward);
  command->add_option("--data", arguments->data, "Data directory")->required();
  command->add_flag("--json", arguments->json, "Write one JSON object");
  command->footer(kExamples);
  command->callback([arguments, &action] { action = [arguments] { return run_evaluate(*arguments); }; });
}

}  // namespace tesser::cli
