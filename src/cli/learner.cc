// `tesser learner`: the process beside a job's command. Engines start it, not people.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "cli/commands.h"
#include "platform/learner/learner.h"

namespace tesser::cli {
namespace {

constexpr const char* kExplanation = R"(
The engine of a tesser server starts it for each learner of a job (docs/platform.md): it waits until the job's guardian
says go, runs the job's command, keeps its log, and writes how it ended to the job's volume. By hand, to look for what
is wrong with a job:
  tesser learner --volume DATA/jobs/ID --attempt 1 --rank 0

Exit code: 0 when attempts/N/exit-R.json is there, whatever the command's own code, which it holds; else 1.)";

struct Arguments {
  platform::LearnerOptions options;
  std::optional<int> rank;
};

Result<int> rank_of(const Arguments& arguments) {
  if (arguments.rank) {
    return *arguments.rank;
  }
  for (const char* name : {"TESSER_RANK", "SLURM_PROCID"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr || *text == '\0') {
      continue;
    }
    char* end = nullptr;
    const long rank = std::strtol(text, &end, 10);
    if (*end != '\0' || rank < 0 || rank > 1'000'000) {
      return invalid_input(fmt::format("{} is '{}', expected the number of a learner, from 0", name, text));
    }
    return static_cast<int>(rank);
  }
  return invalid_input(
      "which learner of the job is this? Give --rank, or TESSER_RANK or SLURM_PROCID in the environment");
}

Result<int> run(const Arguments& arguments) {
  platform::LearnerOptions options = arguments.options;
  TESSER_ASSIGN_OR_RETURN(options.rank, rank_of(arguments));
  std::error_code error;
  options.volume = std::filesystem::absolute(options.volume, error);
  options.tesser = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return failed(fmt::format("the path of this program is unknown: {}", error.message()));
  }
  TESSER_RETURN_IF_ERROR(platform::run_learner(options));
  return 0;
}

}  // namespace

void add_learner(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("learner", "Be one learner of a job (started by a server's engine)");
  command->group("");  // not among the commands that the help lists
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("--volume", arguments->options.volume, "The job's volume, DATA/jobs/ID")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--attempt", arguments->options.attempt, "Number of the job's deployment, from 1")
      ->required()
      ->check(CLI::PositiveNumber);
  command->add_option("--rank", arguments->rank, "Number of this learner, from 0 (or TESSER_RANK, or SLURM_PROCID)")
      ->check(CLI::NonNegativeNumber);
  command->footer(kExplanation);
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace tesser::cli
