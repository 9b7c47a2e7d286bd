// `tesser logs`, `tesser metrics` and `tesser download`: what a job has made.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/file.h"
#include "base/json_members.h"
#include "cli/commands.h"
#include "cli/job_follow.h"
#include "cli/output.h"
#include "cli/platform_login.h"

namespace tesser::cli {
namespace {

constexpr const char* kLogsExamples = R"(
Examples:
  tesser logs mnist-1                    what all learners have written so far
  tesser logs mnist-1 --follow           and what they write, to the end
  tesser logs mnist-1 --learner 1 --json a line's rank, attempt, sequence, time and text

Lines come once and in the order of each learner, also over restarts of server and learners.)";

constexpr const char* kMetricsExamples = R"(
Examples:
  tesser metrics mnist-1
  tesser metrics mnist-1 --name loss --follow
  tesser metrics mnist-1 --json | python plot.py
  tesser metrics mnist-1 --tensorboard runs/mnist-1 --follow)";

constexpr const char* kDownloadExamples = R"(
Examples:
  tesser download mnist-1                          mnist-1-results.tar
  tesser download mnist-1 --checkpoint -o run.tar  the newest complete checkpoint
  tesser download mnist-1 --definition -o - | tar -t)";

struct OutputOptions {
  std::string job;
  FollowOptions follow;
};

Result<int> print(const OutputOptions& options,
                  Result<void> (*print_all)(platform::Client&, const std::string&, const FollowOptions&)) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  const auto job = client->job(options.job);
  if (!job) {
    return tl::unexpected<Error>(with_nearest_job(job.error(), *client, options.job));
  }
  FollowOptions follow = options.follow;
  follow.learners = follow.query.learner ? 1 : job->learners_wanted;
  if (follow.follow) {
    leave_on_interrupt(options.job);
  }
  TESSER_RETURN_IF_ERROR(print_all(*client, options.job, follow));
  return 0;
}

struct DownloadOptions {
  std::string job;
  std::string output;
  bool definition = false;
  bool checkpoint = false;
  bool json = false;
};

Result<int> download(const DownloadOptions& options) {
  const auto what = options.definition   ? platform::Download::kDefinition
                    : options.checkpoint ? platform::Download::kCheckpoints
                                         : platform::Download::kResults;
  const char* name = options.definition ? "definition" : options.checkpoint ? "checkpoint" : "results";
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  std::int64_t bytes = 0;
  Result<void> outcome;
  const std::string output = options.output.empty() ? fmt::format("{}-{}.tar", options.job, name) : options.output;
  if (output == "-") {
    outcome = client->download(options.job, what, [&](std::string_view piece) -> Result<void> {
      write_output(piece);
      return flush_output();
    });
  } else {
    TESSER_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create_output(output));
    outcome = client->download(options.job, what, [&](std::string_view piece) {
      bytes += static_cast<std::int64_t>(piece.size());
      return file.append(piece);
    });
    if (outcome) {
      outcome = file.commit();
    }
  }
  if (!outcome) {
    return tl::unexpected<Error>(client->job(options.job) ? outcome.error()
                                                          : with_nearest_job(outcome.error(), *client, options.job));
  }
  if (output != "-") {
    print_summary(output, "{}\n",
                  options.json ? JsonMembers().add("file", output).add("bytes", bytes).object()
                               : fmt::format("{} ({})", output, bytes_text(bytes)));
  }
  return 0;
}

CLI::App* add_output(CLI::App& app, const char* name, const char* about, const char* examples,
                     const std::shared_ptr<OutputOptions>& options) {
  options->follow.follow = false;
  CLI::App* command = app.add_subcommand(name, about);
  command->add_option("job", options->job, "The job's id")->required();
  command->add_flag("--follow,-f", options->follow.follow, "Go on until the job ends");
  command->add_option("--learner", options->follow.query.learner, "Of this rank alone")->check(CLI::NonNegativeNumber);
  command->add_flag("--json", options->follow.json, "Write JSON, an object a line");
  command->footer(examples);
  return command;
}

}  // namespace

void add_logs(CLI::App& app, Action& action) {
  const auto options = std::make_shared<OutputOptions>();
  CLI::App* command = add_output(app, "logs", "What a job's learners write", kLogsExamples, options);
  command->add_flag("--raw", options->follow.raw, "Steps of a program as the JSON that it writes, not in words");
  command->callback([options, &action] { action = [options] { return print(*options, print_logs); }; });
}

void add_metrics(CLI::App& app, Action& action) {
  const auto options = std::make_shared<OutputOptions>();
  CLI::App* command = add_output(app, "metrics", "A job's figures by step", kMetricsExamples, options);
  command->add_option("--name", options->follow.query.name, "Of this name alone: loss");
  command->add_option("--tensorboard", options->follow.tensorboard,
                      "Write event files of TensorBoard into this directory instead");
  command->callback([options, &action] {
    action = [options] {
      return print(*options, options->follow.tensorboard.empty() ? print_metrics : export_metrics);
    };
  });
}

void add_download(CLI::App& app, Action& action) {
  const auto options = std::make_shared<DownloadOptions>();
  CLI::App* command = app.add_subcommand("download", "A job's results, checkpoint or code, as a TAR");
  command->add_option("job", options->job, "The job's id")->required();
  command->add_option("-o,--output", options->output, "The file; - is standard output (JOB-results.tar)");
  auto* definition = command->add_flag("--definition", options->definition, "What was submitted");
  command->add_flag("--checkpoint", options->checkpoint, "The newest complete checkpoint")->excludes(definition);
  command->add_flag("--json", options->json, "Write JSON about the file");
  command->footer(kDownloadExamples);
  command->callback([options, &action] { action = [options] { return download(*options); }; });
}

}  // namespace tesser::cli
