// `tesser halt`, `tesser resume` and `tesser delete`: what the owner wants of a job.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/json_members.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/platform_login.h"

namespace tesser::cli {
namespace {

constexpr const char* kHaltExamples = R"(
Examples:
  tesser halt mnist-1              ends its learners after their checkpoint, and gives its places back

It answers at once; `tesser status mnist-1 --follow` shows when the job is HALTED.)";

constexpr const char* kResumeExamples = R"(
Examples:
  tesser resume mnist-1                  goes on from the newest complete checkpoint
  tesser resume mnist-1 --learners 4     on another number of learners)";

constexpr const char* kDeleteExamples = R"(
Examples:
  tesser delete mnist-1            ends it, and removes its files, log and record
  tesser delete mnist-1 --yes      without asking)";

struct Options {
  std::string job;
  std::optional<int> learners;
  bool yes = false;
  bool json = false;
};

template <typename Change>
Result<int> change(const Options& options, const std::string& done, const Change& make) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  const auto job = make(*client);
  if (!job) {
    return tl::unexpected<Error>(with_nearest_job(job.error(), *client, options.job));
  }
  if (options.json) {
    print_output("{}\n", job->json);
  } else {
    print_output("{}: {} ({})\n", options.job, done, platform::name_of(job->state));
  }
  return 0;
}

Result<int> remove(const Options& options) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  const auto job = client->job(options.job);
  if (!job) {
    return tl::unexpected<Error>(with_nearest_job(job.error(), *client, options.job));
  }
  if (!options.yes && ::isatty(STDIN_FILENO) == 1) {
    print_message("{} is {}. Remove it with its log, checkpoints and results? [y/N] ", options.job,
                  platform::name_of(job->state));
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != "y" && answer != "Y" && answer != "yes") {
      return invalid_input(fmt::format("{} was left as it is", options.job));
    }
  }
  TESSER_RETURN_IF_ERROR(client->remove(options.job));
  if (options.json) {
    print_output("{}\n", JsonMembers().add("id", options.job).add("deleted", true).object());
  } else {
    print_output("{}: is being removed\n", options.job);
  }
  return 0;
}

CLI::App* add_command(CLI::App& app, const char* name, const char* about, const char* examples,
                      const std::shared_ptr<Options>& options) {
  CLI::App* command = app.add_subcommand(name, about);
  command->add_option("job", options->job, "The job's id")->required();
  command->add_flag("--json", options->json, "Write JSON");
  command->footer(examples);
  return command;
}

}  // namespace

void add_halt(CLI::App& app, Action& action) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, "halt", "Stop a job; it can be resumed", kHaltExamples, options);
  command->callback([options, &action] {
    action = [options] {
      return change(*options, "halts", [&](platform::Client& client) { return client.halt(options->job); });
    };
  });
}

void add_resume(CLI::App& app, Action& action) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, "resume", "Let a halted job go on", kResumeExamples, options);
  command->add_option("--learners", options->learners, "On so many learners (as before)")->check(CLI::Range(1, 10'000));
  command->callback([options, &action] {
    action = [options] {
      return change(*options, "goes on",
                    [&](platform::Client& client) { return client.resume(options->job, options->learners); });
    };
  });
}

void add_delete(CLI::App& app, Action& action) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, "delete", "End a job and remove all of it", kDeleteExamples, options);
  command->add_flag("--yes,-y", options->yes, "Do not ask");
  command->callback([options, &action] { action = [options] { return remove(*options); }; });
}

}  // namespace tesser::cli
