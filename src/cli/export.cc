#include "runtime/export.h"
#include "cli/output.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "cli/commands.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser export run1 -o weights.safetensors
  tesser export run1/step-00000200 -o weights.safetensors

In PyTorch: model.load_state_dict(safetensors.torch.load_file("weights.safetensors")))";

struct Arguments {
  std::filesystem::path checkpoint;
  std::filesystem::path output;
};

Result<int> run_export(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(AtomicFile output, AtomicFile::create_output(arguments.output));
  std::vector<std::string> notes;
  TESSER_ASSIGN_OR_RETURN(const runtime::Checkpoint checkpoint, runtime::Checkpoint::open(arguments.checkpoint, notes));
  for (const std::string& note : notes) {
    print_message("tesser: {}\n", note);
  }
  TESSER_ASSIGN_OR_RETURN(const runtime::Exported exported, runtime::export_weights(checkpoint, std::move(output)));
  print_summary(arguments.output, "{}: {} tensors, {}, of {} after step {}\n", arguments.output.string(),
                exported.tensors, bytes_text(exported.bytes), checkpoint.path().string(), checkpoint.info().step);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("export", "Write a checkpoint's weights as one file for PyTorch's load_state_dict");
  const auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("checkpoint", arguments->checkpoint,
                   "Checkpoint directory (its newest complete checkpoint), or one step-N directory")
      ->required();
  command->add_option("-o,--output", arguments->output, "Safetensors file to write")->required();
  command->footer(kExamples);
  command->callback([arguments, &action] { action = [arguments] { return run_export(*arguments); }; });
}

}  // namespace tesser::cli
