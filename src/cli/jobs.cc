// `tesser list` and `tesser status`: what jobs there are, and how one is.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json_members.h"
#include "cli/commands.h"
#include "cli/job_follow.h"
#include "cli/job_text.h"
#include "cli/output.h"
#include "cli/platform_login.h"

namespace tesser::cli {
namespace {

constexpr const char* kListExamples = R"(
Examples:
  tesser list                      the newest jobs
  tesser list --state QUEUED       those that wait, with their reasons
  tesser list --limit 1000 --json)";

constexpr const char* kStatusExamples = R"(
Examples:
  tesser status mnist-1            state, reason, progress, learners and history
  tesser status mnist-1 --follow   until it ends; the exit code is the job's outcome)";

struct ListOptions {
  platform::JobsQuery query;
  bool ids = false;
  bool json = false;
};

Result<int> list(const ListOptions& options) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  platform::JobsQuery query = options.query;
  constexpr int kPage = 500;
  std::vector<platform::JobAnswer> jobs;
  for (;;) {
    query.limit = std::min(kPage, options.query.limit - static_cast<int>(jobs.size()));
    TESSER_ASSIGN_OR_RETURN(platform::JobsAnswer page, client->jobs(query));
    std::move(page.jobs.begin(), page.jobs.end(), std::back_inserter(jobs));
    query.after = page.next;
    if (page.next.empty() || page.jobs.empty() || static_cast<int>(jobs.size()) >= options.query.limit) {
      break;
    }
  }
  if (options.json) {
    print_output("{{\"jobs\":{}}}\n", json_list(jobs, [](const platform::JobAnswer& job) { return job.json; }));
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "STATE", "TEAM", "USER", "LEARNERS", "AGE", "PROGRESS OR REASON"}};
  for (const platform::JobAnswer& job : jobs) {
    if (options.ids) {
      print_output("{}\n", job.id);
      continue;
    }
    std::string note = job.state == platform::JobState::kProcessing ? progress_text(job.progress) : job.reason;
    if (job.place_in_queue > 0) {
      note = fmt::format("{} in the queue{}{}", job.place_in_queue, note.empty() ? "" : ": ", note);
    } else if (job.is_borrowed) {
      note = fmt::format("borrowed{}{}", note.empty() ? "" : ": ", note);
    }
    rows.push_back({job.id, std::string(platform::name_of(job.state)), job.team, job.user,
                    std::to_string(job.learners_wanted), age_text(job.submitted), safe_line(note, true)});
  }
  if (!options.ids) {
    print_output("{}", jobs.empty() ? "no jobs; `tesser submit MANIFEST DIR` makes one\n" : table(rows));
  }
  return 0;
}

struct StatusOptions {
  std::string job;
  bool follow = false;
  bool json = false;
};

std::string state_line(const platform::JobAnswer& job) {
  return fmt::format("{}  {}{}{}", job.id, platform::name_of(job.state), job.reason.empty() ? "" : ": ",
                     safe_line(job.reason, true));
}

void show(const platform::JobAnswer& job, const std::vector<platform::ChangeAnswer>& history) {
  print_output("{}\n", state_line(job));
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) {
      rows.push_back({what, safe_line(value, true)});
    }
  };
  add("  description", job.description);
  add("  team, user", job.team + ", " + job.user);
  add("  needs", fmt::format("{} learner{} with {}", job.learners_wanted, job.learners_wanted == 1 ? "" : "s",
                             resources_text(job.each)));
  if (job.place_in_queue > 0) {
    add("  queue", fmt::format("place {}, priority {}{}", job.place_in_queue, job.priority,
                               job.starts_by.empty() ? "" : ", starts by " + job.starts_by));
  }
  if (job.is_borrowed) {
    add("  places", "borrowed: beyond the team's quota, until others need them");
  }
  if (job.wanted != platform::Wanted::kRun) {
    add("  wanted", std::string(platform::name_of(job.wanted)));
  }
  if (job.attempt > 0) {
    add("  attempt", fmt::format("{} ({} of {} restarts)", job.attempt, job.restarts, job.restarts_most));
  }
  add("  progress", progress_text(job.progress));
  add("  submitted", fmt::format("{} ({} ago)", job.submitted, age_text(job.submitted)));
  add("  started", job.started);
  add("  ended", job.ended);
  print_output("{}", table(rows));
  if (!job.learners.empty()) {
    rows = {{"  LEARNER", "NODE", "STATE"}};
    for (const platform::JobLearner& learner : job.learners) {
      rows.push_back({fmt::format("  {}", learner.rank), learner.node, learner.state});
    }
    print_output("\n{}", table(rows));
  }
  rows = {{"  TIME", "STATE", "ATTEMPT", "REASON"}};
  for (const platform::ChangeAnswer& change : history) {
    rows.push_back({"  " + change.time, change.state, change.attempt > 0 ? std::to_string(change.attempt) : "-",
                    safe_line(change.reason, true)});
  }
  print_output("\n{}", table(rows));
}

// One line that is written over on a terminal; else a line for each change.
Result<int> follow_status(platform::Client& client, const StatusOptions& options) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1 && !options.json;
  std::string shown;
  for (;;) {
    const auto job = persistently(client, [&] { return client.job(options.job); });
    if (!job) {
      return tl::unexpected<Error>(with_nearest_job(job.error(), client, options.job));
    }
    const bool is_processing = job->state == platform::JobState::kProcessing;
    std::string line = options.json ? job->json : state_line(*job);
    if (is_terminal && is_processing) {
      line += "  " + progress_text(job->progress);
    }
    if (line != shown) {
      print_output("{}{}{}", is_terminal ? "\r\x1b[K" : "", line, is_terminal ? "" : "\n");
      TESSER_RETURN_IF_ERROR(flush_output());
      shown = line;
    }
    if (is_at_rest(*job)) {
      if (is_terminal) {
        print_output("\n");
      }
      return options.json ? Result<int>(job->state == platform::JobState::kCompleted ? 0 : 1)
                          : Result<int>(outcome_of(*job));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

Result<int> status(const StatusOptions& options) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  if (options.follow) {
    leave_on_interrupt(options.job);
    return follow_status(*client, options);
  }
  const auto job = client->job(options.job);
  if (!job) {
    return tl::unexpected<Error>(with_nearest_job(job.error(), *client, options.job));
  }
  if (options.json) {
    print_output("{}\n", job->json);
    return 0;
  }
  TESSER_ASSIGN_OR_RETURN(const auto history, client->history(options.job));
  show(*job, history);
  return 0;
}

}  // namespace

void add_list(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("list", "Jobs, newest first");
  const auto options = std::make_shared<ListOptions>();
  command->add_option("--state", options->query.state, "Only those in this state: QUEUED, PROCESSING, ...");
  command->add_option("--team", options->query.team, "Only those of this team");
  command->add_option("--limit", options->query.limit, "At most so many")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  auto* json = command->add_flag("--json", options->json, "Write JSON");
  command->add_flag("--ids", options->ids, "Write ids alone, one a line")->excludes(json);
  command->footer(kListExamples);
  command->callback([options, &action] { action = [options] { return list(*options); }; });
}

void add_status(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("status", "State, reason, progress and history of a job");
  const auto options = std::make_shared<StatusOptions>();
  command->add_option("job", options->job, "The job's id")->required();
  command->add_flag("--follow,-f", options->follow, "Until it ends, with a progress bar");
  command->add_flag("--json", options->json, "Write JSON; with --follow a line for each change");
  command->footer(kStatusExamples);
  command->callback([options, &action] { action = [options] { return status(*options); }; });
}

}  // namespace tesser::cli
