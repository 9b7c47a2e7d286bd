#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/reporters.h"
#include "cli/stop_signal.h"
#include "partition/format.h"
#include "partition/replicas.h"
#include "runtime/coordinator.h"
#include "runtime/hosts.h"
#include "runtime/memory_limit.h"
#include "runtime/train.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser train mnist.tesser --data data/train --epochs 5 --evaluate data/check
  tesser train gpt.tesser --data shakespeare --steps 2000 --checkpoint run1 --every 200
  tesser train gpt.tesser --data shakespeare --steps 4000 --checkpoint run1 --resume
  tesser train gpt.tesser --data shakespeare --workers 4 --memory 12GiB
  tesser train gpt.tesser --data shakespeare --plan gpt.plan
  tesser train gpt.tesser --data shakespeare --hosts node1,node2
  tesser train gpt.tesser --data shakespeare --replicas 2 --workers 2
  tesser train gpt.tesser --data shakespeare --replicas auto --workers 4

The data directory holds NAME.npy, NAME.safetensors or NAME.bin with NAME.json for each batch value NAME of the
program (docs/formats/data.md). Ctrl-C finishes the step and writes a checkpoint where --checkpoint was given; the
exit code is then 1, as of any run that did not reach its end.

With several workers the step is cut as the plan says and each worker, a process of its own, computes its part; the
numbers are those of one worker but for the order of sums. docs/runtime.md says how workers on other machines join.

With several replicas the program's batch is each replica's: a step takes one batch after the other from the data, one
for each, and the loss is the mean of theirs. A hub that runs elsewhere is asked with the token in TESSER_HUB_TOKEN.)";

struct Arguments {
  runtime::TrainOptions options;
  runtime::DistributedOptions distributed;
  int workers = 1;
  std::string preset = "default";
  std::string memory;
  std::string replicas = "1";
  std::string hosts;
  std::string launcher = "ssh -o BatchMode=yes";
  bool workers_given = false;
  bool replicas_given = false;
  bool no_shuffle = false;
  bool json = false;

  bool is_distributed() const {
    return workers > 1 || !hosts.empty() || options.replicas > 1 || distributed.plan.plan || distributed.external ||
           distributed.trace;
  }
};

Result<runtime::DistributedOptions> distributed_options(const Arguments& arguments) {
  runtime::DistributedOptions options = arguments.distributed;
  options.plan.workers = options.plan.plan && arguments.workers == 1 ? 0 : arguments.workers;
  if (const char* token = std::getenv("TESSER_HUB_TOKEN"); token != nullptr && options.hub) {
    options.hub_token = token;
  }
  if (!arguments.hosts.empty()) {
    TESSER_ASSIGN_OR_RETURN(options.hosts, runtime::read_hosts(arguments.hosts));
    if (!arguments.workers_given && !options.plan.plan) {
      options.plan.workers = std::max(1, static_cast<int>(std::ssize(options.hosts) / arguments.options.replicas));
    }
    std::istringstream words(arguments.launcher);
    options.launcher.assign(std::istream_iterator<std::string>(words), {});
    if (options.launcher.empty()) {
      return invalid_input("--launcher: expected a command, such as ssh");
    }
    if (options.remote_program.empty()) {
      std::error_code error;
      options.remote_program =
          (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "tesser").string();
      if (error) {
        return failed("the path of this program is unknown; --remote-tesser says where it is on the hosts");
      }
    }
  }
  options.plan.preset = partition::preset_from_name(arguments.preset).value_or(partition::Preset::kDefault);
  if (!arguments.memory.empty()) {
    options.plan.memory_bytes = bytes_from_text(arguments.memory);
    if (options.plan.memory_bytes.value_or(0) < 1) {
      return invalid_input(
          fmt::format("--memory {}: expected a size such as 12GiB, 500MB or 800000000", arguments.memory));
    }
  }
  return options;
}

// Divides the workers among replicas, where that is asked for or a plan says so.
Result<void> choose_replicas(Arguments& arguments, runtime::DistributedOptions& distributed,
                             runtime::TrainReporter& reporter) {
  if (arguments.replicas != "auto") {
    if (distributed.plan.plan && !arguments.replicas_given) {
      TESSER_ASSIGN_OR_RETURN(const partition::PlanRecord plan, partition::read_plan_header(*distributed.plan.plan));
      arguments.options.replicas = plan.replicas;
    }
    return {};
  }
  if (distributed.plan.plan) {
    return invalid_input(
        "--replicas auto: a plan says itself how many replicas it is for (tesser plan --replicas auto)");
  }
  runtime::PlanChoice choice = distributed.plan;
  if (!choice.memory_bytes && choice.preset == partition::Preset::kDefault && distributed.hosts.empty() &&
      !distributed.external) {
    choice.memory_bytes = runtime::memory_limit().bytes / choice.workers;  // all workers share this machine
  }
  TESSER_ASSIGN_OR_RETURN(const std::vector<partition::ReplicaChoice> choices,
                          runtime::divide_workers(arguments.options.program, choice));
  const partition::ReplicaChoice& best = partition::fastest(choices);
  reporter.note(fmt::format("{} workers as {} replica{} of {}\n{}", choice.workers, best.replicas,
                            best.replicas == 1 ? "" : "s", best.workers, partition::print(choices)));
  arguments.options.replicas = best.replicas;
  distributed.plan.workers = best.workers;
  distributed.plan.replicas_of_topology = best.replicas;
  return {};
}

Result<runtime::TrainEnd> train(Arguments arguments, runtime::TrainReporter& reporter, const std::atomic<bool>& stop) {
  if (!arguments.is_distributed()) {
    return runtime::train(arguments.options, reporter, stop);
  }
  TESSER_ASSIGN_OR_RETURN(runtime::DistributedOptions distributed, distributed_options(arguments));
  TESSER_RETURN_IF_ERROR(choose_replicas(arguments, distributed, reporter));
  return runtime::train_distributed(arguments.options, distributed, reporter, stop);
}

Result<int> run_train(const Arguments& arguments) {
  const std::atomic<bool>& stop = stop_on_signal("stopping after this step");
  const ReportStyle style = arguments.json                 ? ReportStyle::kJson
                            : ::isatty(STDOUT_FILENO) == 1 ? ReportStyle::kProgressBar
                                                           : ReportStyle::kLines;
  const std::unique_ptr<runtime::TrainReporter> reporter = make_reporter(style);
  const Result<runtime::TrainEnd> end = train(arguments, *reporter, stop);
  if (!end) {
    if (arguments.json) {
      print_error_event(end.error());
    }
    return tl::unexpected<Error>(end.error());
  }
  if (end->interrupted) {
    print_message("tesser train: stopped after step {}. {}\n", end->step,
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
  runtime::DistributedOptions& distributed = arguments->distributed;
  auto* workers = command->add_option("-w,--workers", arguments->workers, "Workers that compute a part of each step");
  workers->capture_default_str()->check(CLI::Range(1, 1 << 16));
  auto* replicas = command
                       ->add_option("--replicas", arguments->replicas,
                                    "Copies of the program that take a batch each and average their gradients in a "
                                    "parameter hub; --workers are those of each. auto: --workers are all, divided into "
                                    "replicas as gives most batches a second within --memory")
                       ->capture_default_str()
                       ->check(CLI::IsMember({"auto"}) | CLI::Range(1, 64));
  command
      ->add_option("--hub", distributed.hub,
                   "Hub where the replicas meet, as tesser hub serve prints it: http://HOST:PORT (else one in this "
                   "process)")
      ->needs(replicas);
  auto* plan = command->add_option("--plan", distributed.plan.plan, "How the step is cut, as tesser plan writes it");
  std::vector<std::string> presets;
  for (const partition::Preset preset : partition::presets()) {
    presets.emplace_back(partition::preset_name(preset));
  }
  command
      ->add_option("--preset", arguments->preset, "Without a plan: the kind of plan to look for (tesser plan --help)")
      ->capture_default_str()
      ->check(CLI::IsMember(presets))
      ->excludes(plan);
  command->add_option("--memory", arguments->memory, "Without a plan: what a worker has (12GiB, 500MB)")
      ->excludes(plan);
  command->add_option("--topology", distributed.plan.topology, "Without a plan: machines and links (JSON)")
      ->excludes(plan);
  command->add_option("--tdl", distributed.plan.descriptions, "Without a plan: further descriptions of operators")
      ->excludes(plan);
  command->add_flag("--network", distributed.network,
                    "Workers exchange tensors by RDMA or TCP even on one machine, never through shared memory");
  command->add_option("--trace", distributed.trace,
                      "File for what each worker did in the last ten steps (chrome://tracing, ui.perfetto.dev)");
  auto* external = command->add_flag("--external", distributed.external,
                                     "Wait for workers that others start: tesser worker --coordinator URL --worker I");
  command
      ->add_option("--hosts", arguments->hosts,
                   "Start the workers on these machines: A,B,C, or a file with a line 'HOST [PLACES]' for each")
      ->excludes(external);
  command
      ->add_option("--launcher", arguments->launcher,
                   "With --hosts: what starts a command there, LAUNCHER HOST COMMAND")
      ->capture_default_str();
  command->add_option("--remote-tesser", distributed.remote_program,
                      "With --hosts: path of tesser there, if it is not this one's");
  command->add_option("--listen", distributed.listen,
                      "Where the coordinator listens for workers: HOST:PORT (127.0.0.1, or what leads to the hosts)");
  command->add_option("--run-directory", distributed.run_directory,
                      "Directory for the workers' logs and what they write for --trace; removed at the end");
  command->add_option("--threads", options.threads, "Threads to compute with, of each worker (0: all processors)")
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
  command->callback([arguments, workers, replicas, &action] {
    arguments->workers_given = workers->count() > 0;
    arguments->replicas_given = replicas->count() > 0;
    arguments->options.replicas = arguments->replicas == "auto" ? 1 : std::atoll(arguments->replicas.c_str());
    arguments->options.shuffle = !arguments->no_shuffle;
    action = [arguments] { return run_train(*arguments); };
  });
}

}  // namespace tesser::cli
