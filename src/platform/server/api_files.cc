// What lies on a job's volume: logs, metrics, downloads.
#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "platform/job/learner_user.h"
#include "platform/job/times.h"
#include "platform/learner/log_reader.h"
#include "platform/learner/metrics_reader.h"
#include "platform/learner/metrics_thinner.h"
#include "platform/server/api.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostLines = 10'000;
constexpr std::int64_t kMostWait = 30;
constexpr std::int64_t kMostPoints = 2'000;
constexpr std::size_t kMetricsAtOnce = 10'000;
constexpr std::int64_t kMostRank = 1'000'000;
constexpr std::chrono::milliseconds kBetweenLooks{250};  // at the job's state and the server's end

bool is_over(const JobRecord& job) { return is_final(job.state) || job.state == JobState::kHalted; }

std::string line_json(const LogLine& line) {
  return JsonMembers()
      .add("learner", line.learner)
      .add("attempt", line.attempt)
      .add("sequence", static_cast<std::int64_t>(line.sequence))
      .add("time", time_text(line.time))
      .add("text", line.text)
      .add("note", line.is_note)
      .add("cut", line.is_cut)
      .add("return", line.ends_with_return)
      .object();
}

std::string metric_json(const Metric& metric) {
  return JsonMembers()
      .add("learner", metric.learner)
      .add("step", metric.step)
      .add("time", time_text(metric.time))
      .add("name", metric.name)
      .add_text("value", std::isfinite(metric.value) ? json_number_text(metric.value) : "null")
      .object();
}

struct PageQuery {
  std::optional<int> learner;
  std::string cursor;
  std::size_t limit = 1'000;
  std::chrono::seconds wait{0};
  std::optional<std::uint64_t> tail;
  std::optional<std::size_t> points;
  std::string wrong;
};

PageQuery page_query_of(const control::HttpRequest& request) {
  PageQuery query;
  const auto argument = [&](std::string_view name) {  // an empty one is as none
    const std::string* text = request.argument(name);
    return text != nullptr && !text->empty();
  };
  if (argument("learner")) {
    const auto learner = number_of(request, "learner", 0, kMostRank, query.wrong);
    query.learner = learner ? std::optional(static_cast<int>(*learner)) : std::nullopt;
  }
  if (argument("cursor")) {
    query.cursor = *request.argument("cursor");
  }
  if (argument("limit")) {
    query.limit = static_cast<std::size_t>(number_of(request, "limit", 1, kMostLines, query.wrong).value_or(1));
  }
  if (argument("wait")) {
    query.wait = std::chrono::seconds(number_of(request, "wait", 0, kMostWait, query.wrong).value_or(0));
  }
  if (argument("tail")) {
    query.tail = static_cast<std::uint64_t>(number_of(request, "tail", 0, INT64_MAX, query.wrong).value_or(0));
  }
  if (argument("points")) {
    query.points = static_cast<std::size_t>(number_of(request, "points", 2, kMostPoints, query.wrong).value_or(2));
  }
  return query;
}

// All there is from the cursor on, thinned.
Result<MetricsPage> thinned(MetricsReader& reader, std::string cursor, std::size_t points) {
  MetricsThinner thinner(points);
  while (true) {
    TESSER_ASSIGN_OR_RETURN(MetricsPage page, reader.read(cursor, kMetricsAtOnce));
    cursor = std::move(page.cursor);
    if (page.metrics.empty()) {
      return MetricsPage{thinner.metrics(), std::move(cursor)};
    }
    for (Metric& metric : page.metrics) {
      thinner.add(std::move(metric));
    }
  }
}

control::HttpResponse page_error(const Error& error) {
  return error.code == ErrorCode::kInvalidInput ? Api::error(400, "U_REQUEST", error.message)
                                                : Api::error(503, "S_VOLUME", error.message);
}

// Reads pages until one has something, the job is over, or the time. `read(wait)` gives a page, `has(page)` whether
// there is something in it, `over()` whether nothing can follow what is there now.
template <typename Read, typename Has, typename Over>
auto wait_for_page(const control::HttpRequest& request, std::chrono::seconds wait, const Read& read, const Has& has,
                   const Over& over, bool& ended) {
  const Clock::time_point until = Clock::now() + wait;
  std::optional<control::WaitingPlace> place;
  while (true) {
    const bool is_last = over();  // asked before reading: what is there then is all
    auto page = read(std::chrono::milliseconds(0));
    ended = is_last && page && !has(*page);
    if (!page || has(*page) || is_last || Clock::now() >= until) {
      return page;
    }
    if (!place) {
      place = request.begin_to_wait();
      if (!place) {
        return page;
      }
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    page = read(std::clamp(left, std::chrono::milliseconds(0), kBetweenLooks));
    if (!page || has(*page)) {
      return page;
    }
  }
}

}  // namespace

bool Api::nothing_follows(const std::string& id) const {
  const auto now = store_.job(id);
  return bells_.is_over() || !now || is_over(*now);
}

control::HttpResponse Api::logs(const Call& call) {
  const auto job = job_of(call);
  if (!job) {
    return job.error();
  }
  const PageQuery query = page_query_of(call.request);
  if (!query.wrong.empty()) {
    return error(400, "U_REQUEST", query.wrong);
  }
  LogReader reader(volume_of(job->id), query.learner);
  const LearnerUser user = learner_user_of(volume_of(job->id));
  Result<LogCursor> cursor = LogCursor();
  if (!query.cursor.empty()) {
    cursor = LogCursor::parse(query.cursor);
  } else if (query.tail) {
    const ActingAs learner(user);
    cursor = reader.tail(*query.tail);
  }
  if (!cursor) {
    return page_error(cursor.error());
  }
  bool ended = false;
  const auto page = wait_for_page(
      call.request, query.wait,
      [&](std::chrono::milliseconds wait) {
        const ActingAs learner(user);
        return reader.read_waiting(*cursor, query.limit, wait);
      },
      [](const LogPage& page) { return !page.lines.empty() || !page.missed.empty(); },
      [&] { return nothing_follows(job->id); }, ended);
  if (!page) {
    return page_error(page.error());
  }
  Response response;
  response.body = JsonMembers()
                      .add_text("lines", json_list(page->lines, line_json))
                      .add_text("missed", json_list(page->missed,
                                                    [](const MissedLines& missed) {
                                                      return JsonMembers()
                                                          .add("learner", missed.learner)
                                                          .add("first", static_cast<std::int64_t>(missed.first))
                                                          .add("count", static_cast<std::int64_t>(missed.count))
                                                          .object();
                                                    }))
                      .add("cursor", page->cursor.text())
                      .add("ended", ended && !bells_.is_over())
                      .object();
  return response;
}

control::HttpResponse Api::metrics(const Call& call) {
  const auto job = job_of(call);
  if (!job) {
    return job.error();
  }
  const PageQuery query = page_query_of(call.request);
  if (!query.wrong.empty()) {
    return error(400, "U_REQUEST", query.wrong);
  }
  const std::string* name = call.request.argument("name");
  const LearnerUser user = learner_user_of(volume_of(job->id));
  MetricsReader reader(volume_of(job->id), query.learner, name == nullptr ? "" : *name);
  bool ended = false;
  const auto page = wait_for_page(
      call.request, query.wait,
      [&](std::chrono::milliseconds wait) {
        const ActingAs learner(user);
        return query.points ? thinned(reader, query.cursor, *query.points)
                            : reader.read_waiting(query.cursor, query.limit, wait);
      },
      [](const MetricsPage& page) { return !page.metrics.empty(); }, [&] { return nothing_follows(job->id); }, ended);
  if (!page) {
    return page_error(page.error());
  }
  Response response;
  response.body = JsonMembers()
                      .add_text("metrics", json_list(page->metrics, metric_json))
                      .add("cursor", page->cursor)
                      .add("ended", ended && !bells_.is_over())
                      .object();
  return response;
}

control::HttpResponse Api::download(const Call& call, const fs::path& directory, const std::string& what) {
  const LearnerUser user = learner_user_of(volume_of(call.id()));
  const ActingAs learner(user);
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(directory, error))) {
    return Api::error(404, "U_NOT_FOUND", fmt::format("job {} has no {} yet", call.id(), what));
  }
  Response response;
  response.content_type = "application/x-tar";
  response.headers.emplace_back("Content-Disposition",
                                fmt::format("attachment; filename=\"{}-{}.tar\"", call.id(), what));
  response.stream = [directory, user](const control::HttpWrite& write) {
    const ActingAs learner(user);
    return write_tar(directory, write);
  };
  return response;
}

control::HttpResponse Api::definition(const Call& call) {
  const auto job = job_of(call);
  return job ? download(call, volume_of(job->id).code(), "definition") : job.error();
}

control::HttpResponse Api::results(const Call& call) {
  const auto job = job_of(call);
  return job ? download(call, volume_of(job->id).results(), "results") : job.error();
}

control::HttpResponse Api::checkpoints(const Call& call) {
  const auto job = job_of(call);
  if (!job) {
    return job.error();
  }
  // The newest complete one of tesser's (docs/formats/checkpoint.md); all that lies there of other programs.
  const fs::path all = volume_of(job->id).checkpoints();
  fs::path newest = all;
  std::error_code error;
  const ActingAs learner(volume_of(job->id));
  for (fs::directory_iterator each(all, error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename();
    if (name.starts_with("step-") && name.find('.') == std::string::npos &&
        fs::is_directory(each->symlink_status(error)) && (newest == all || name > newest.filename())) {
      newest = each->path();
    }
  }
  return download(call, newest, "checkpoints");
}

}  // namespace tesser::platform
