#include "cli/job_follow.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "base/json_members.h"
#include "cli/event_text.h"
#include "cli/job_text.h"
#include "cli/output.h"
#include "platform/job/times.h"
#include "platform/learner/event_files.h"

namespace tesser::cli {
namespace {

constexpr std::chrono::seconds kWait{5};

std::array<char, 256> interrupt_message{};

// Gives each page of `page_of` to `print`, which says how many entries it had, until the end; the same for lines and
// metrics.
template <typename PageOf, typename Print>
Result<void> print_pages(platform::Client& client, const std::string& id, const FollowOptions& options,
                         const PageOf& page_of, const Print& print) {
  platform::FollowQuery query = options.query;
  std::string state;
  for (;;) {
    if (options.follow) {
      query.wait = kWait;
    }
    const auto page = persistently(client, [&] { return page_of(query); });
    if (!page) {
      return tl::unexpected<Error>(page.error());
    }
    TESSER_ASSIGN_OR_RETURN(const std::size_t count, print(*page));
    TESSER_RETURN_IF_ERROR(flush_output());
    query.cursor = page->cursor;
    if (page->ended || (!options.follow && count == 0)) {
      return {};
    }
    if (options.show_states || (options.follow && count == 0)) {
      const auto job = persistently(client, [&] { return client.job(id); });
      if (!job) {
        return tl::unexpected<Error>(job.error());
      }
      if (options.show_states && state != platform::name_of(job->state)) {
        state = platform::name_of(job->state);
        print_message("{}: {}{}{}\n", id, state, job->reason.empty() ? "" : ": ", safe_line(job->reason, true));
      }
      if (job->state == platform::JobState::kHalted && count == 0) {
        return {};
      }
    }
  }
}

}  // namespace

Result<void> print_logs(platform::Client& client, const std::string& id, const FollowOptions& options) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  return print_pages(
      client, id, options, [&](const platform::FollowQuery& query) { return client.logs(id, query); },
      [&](const platform::LinesAnswer& page) -> Result<std::size_t> {
        for (const platform::LineAnswer& line : page.lines) {
          if (options.json) {
            print_output("{}\n", line.json);
          } else {
            const std::string text = options.raw ? line.text : event_text(line.text).value_or(line.text);
            print_output("{}{}\n", options.learners > 1 ? fmt::format("[{}] ", line.learner) : "",
                         safe_line(text, is_terminal));
          }
        }
        return page.lines.size();
      });
}

Result<void> print_metrics(platform::Client& client, const std::string& id, const FollowOptions& options) {
  return print_pages(
      client, id, options, [&](const platform::FollowQuery& query) { return client.metrics(id, query); },
      [&](const platform::MetricsAnswer& page) -> Result<std::size_t> {
        for (const platform::MetricAnswer& metric : page.metrics) {
          if (options.json) {
            print_output("{}\n", metric.json);
          } else {
            print_output("{}{:>10}  {:<24}  {}\n", options.learners > 1 ? fmt::format("[{}] ", metric.learner) : "",
                         metric.step, safe_line(metric.name, true),
                         metric.value ? fmt::format("{:.6g}", *metric.value) : "not finite");
          }
        }
        return page.metrics.size();
      });
}

Result<void> export_metrics(platform::Client& client, const std::string& id, const FollowOptions& options) {
  platform::EventFiles files(options.tensorboard);
  std::size_t count = 0;
  TESSER_RETURN_IF_ERROR(print_pages(
      client, id, options, [&](const platform::FollowQuery& query) { return client.metrics(id, query); },
      [&](const platform::MetricsAnswer& page) -> Result<std::size_t> {
        for (const platform::MetricAnswer& each : page.metrics) {
          TESSER_RETURN_IF_ERROR(files.add(each.learner, each.step, platform::time_from_text(each.time).value_or(0),
                                           each.name, each.value.value_or(std::nan(""))));
        }
        TESSER_RETURN_IF_ERROR(files.flush());
        count += page.metrics.size();
        return page.metrics.size();
      }));
  print_output("{}\n", options.json ? JsonMembers()
                                          .add("directory", options.tensorboard.string())
                                          .add("metrics", static_cast<std::int64_t>(count))
                                          .object()
                                    : fmt::format("{}: {} metrics; look at them with tensorboard --logdir {}",
                                                  options.tensorboard.string(), count, options.tensorboard.string()));
  return {};
}

bool is_at_rest(const platform::JobAnswer& job) {
  return platform::is_final(job.state) || job.state == platform::JobState::kHalted;
}

int outcome_of(const platform::JobAnswer& job) {
  if (job.state == platform::JobState::kCompleted) {
    print_message("{0}: COMPLETED. `tesser download {0}` brings its results\n", job.id);
    return 0;
  }
  print_message("{}: {}{}{}\n", job.id, platform::name_of(job.state), job.reason.empty() ? "" : ": ",
                safe_line(job.reason, true));
  if (job.state == platform::JobState::kHalted) {
    print_message("`tesser resume {}` goes on from its newest checkpoint\n", job.id);
  }
  return 1;
}

void leave_on_interrupt(const std::string& id) {
  const auto end = fmt::format_to_n(interrupt_message.data(), interrupt_message.size() - 1,
                                    "\nthe job goes on; `tesser logs {} --follow` comes back to it\n", id);
  *end.out = '\0';
  std::signal(SIGINT, [](int) {
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, interrupt_message.data(), std::strlen(interrupt_message.data()));
    ::_exit(130);
  });
}

bool wait_for_server(int tries) {
  constexpr int kMostTries = 600;
  if (tries == 0) {
    print_message("the server is out of reach; trying again (jobs go on without it)\n");
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return tries < kMostTries;
}

}  // namespace tesser::cli
