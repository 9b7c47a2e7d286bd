#include <unistd.h>

#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/reporters.h"
#include "cli/stop_signal.h"
#include "runtime/train.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser train mnist.tesser --data data/train --epochs 5 --evaluate data/check
  tesser train gpt.tesser --data shakespeare --steps 2000 --checkpoint run1 --every 200
  tesser train gpt.tesser --data shakespeare --steps 4000 --checkpoint run1 --resume

The data directory holds NAME.npy, NAME.safetensors or NAME.bin with NAME.json for each batch value NAME of the
program (docs/formats/data.md). Ctrl-C finishes the step and writes a checkpoint where --checkpoint was given; the
exit code is then 1, as of any run that did not reach its end.)";

struct Arguments {
  runtime::TrainOptions options;
  bool no_shuffle = false;
  bool json = false;
};

Result<int> run_train(const Arguments& arguments) {
  const std::atomic<bool>& stop = stop_on_signal();
  const ReportStyle style = arguments.json                 ? ReportStyle::kJson
                            : ::isatty(STDOUT_FILENO) == 1 ? ReportStyle::kProgressBar
                                                           : ReportStyle::kLines;
  const std::unique_ptr<runtime::TrainReporter> reporter = make_reporter(style);
  const Result<runtime::TrainEnd> end = runtime::train(arguments.options, *reporter, stop);
  if (!end) {
    if (arguments.json) {
      print_error_event(end.error());
    }
    return tl::unexpected<Error>(end.error());
  }
  if (end->interrupted) {
    fmt::print(stderr, "tesser train: stopped after step {}. {}\n", end->step,
               end->checkpoint ? fmt::format("{} is complete; the same command with --resume goes on from it",
                                             end->checkpoint->string())
                               : "Nothing was kept; with --checkpoint DIR a stopped run can go on");
    return 1;
  }
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("train", "Train a program on a data directory");
  const auto arguments = std::make_shared<Arguments>();
  runtime::TrainOptions& options = arguments->options;
  command->add_option("program", options.program, "Program directory NAME.tesser, as tesser capture writes it")
      ->required();
  command->add_option("--data", options.data, "Data directory")->required();
  auto* steps =
      command->add_option("--steps", options.steps, "End after so many steps, counted from the program's beginning")
          ->check(CLI::NonNegativeNumber);
  command->add_option("--epochs", options.epochs, "End after so many passes over the data (1 where neither is given)")
      ->check(CLI::NonNegativeNumber)
      ->excludes(steps);
  auto* checkpoint = command->add_option("--checkpoint", options.checkpoint,
                                         "Directory for checkpoints; one is written at the end in any case");
  command->add_option("--every", options.every, "Steps between checkpoints")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->needs(checkpoint);
  command->add_option("--keep", options.keep, "Complete checkpoints that stay")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->needs(checkpoint);
  command
      ->add_flag("--resume", options.resume, "Go on from the newest complete checkpoint, or begin where there is none")
      ->needs(checkpoint);
  command->add_option("--threads", options.threads, "Threads to compute with (0: all processors)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options.seed,
                      "Seed of the data's order and of the program's random numbers (0, or the checkpoint's)");
  command->add_flag("--no-shuffle", arguments->no_shuffle, "Take the samples in the order of the files");
  command->add_flag("--profile", options.profile, "print how long each operator took in a step");
  command->add_flag("--check-nan", options.check_nan,
                    "Stop at the first operator that gives a value that is not finite");
  command->add_option("--evaluate", options.evaluate,
                      "Data directory on which the forward program is evaluated after each epoch and at the end");
  command->add_flag("--json", arguments->json, "Write one event a line (docs/formats/events.md)");
  command->footer(kExamples);
  command->callback([arguments, &action] {
    arguments->options.shuffle = !arguments->no_shuffle;
    action = [arguments] { return run_train(*arguments); };
  });
}

}  // namespace tesser::cli
