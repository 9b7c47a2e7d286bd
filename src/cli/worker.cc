// `tesser worker`: one worker of a run that `tesser train` leads.
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/stop_signal.h"
#include "control/control_http.h"
#include "runtime/worker.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Example, on each of two machines that share a file system:
  TESSER_RUN_TOKEN=secret tesser train gpt.tesser --data data --workers 2 --external --listen 10.0.0.1:7000 \
      --run-directory shared/run1
  TESSER_RUN_TOKEN=secret tesser worker --coordinator http://10.0.0.1:7000 --worker 0     (and --worker 1)

A worker ends with its coordinator: exit code 0 when the run reached its end, else 1. Told to end (Ctrl-C, SIGTERM, SIGHUP), it
waits for its coordinator, which is told as well and stops the run after a step; told again, or where its coordinator
has not begun, it ends at once.)";

Result<int> run(runtime::WorkerOptions options) {
  const char* token = std::getenv(control::kRunTokenVariable);
  if (token == nullptr || *token == '\0') {
    return invalid_input(
        fmt::format("{} is not in the environment; it holds the secret of the run, the same as for its "
                    "coordinator",
                    control::kRunTokenVariable));
  }
  options.token = token;
  // Whoever ends a run tells all of its processes. The coordinator acts on it: workers stop after the same step, with a
  // checkpoint. One that it has started itself does not hear of it at all.
  if (!is_ignored(SIGTERM)) {
    options.stop = &stop_on_signal("this worker ends when its run does");
  }
  outlive_output();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its write
  TESSER_RETURN_IF_ERROR(runtime::run_worker(options));
  return 0;
}

}  // namespace

void add_worker(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("worker", "Be one worker of a run that tesser train leads");
  const auto options = std::make_shared<runtime::WorkerOptions>();
  command->add_option("--coordinator", options->coordinator, "Where the run is led: http://HOST:PORT")->required();
  command->add_option("--worker", options->worker, "Number of this worker, from 0")
      ->required()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--host", options->listen,
                      "Address of this machine for the other workers (the one that leads to the coordinator)");
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace tesser::cli
