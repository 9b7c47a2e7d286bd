// What the server answers, read (docs/platform.md, HTTP). Members that a newer server adds are ignored.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/job_state.h"
#include "platform/job/resources.h"

namespace tesser::platform {

// Times are as sent: RFC 3339, empty for none.
struct JobProgress {
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> steps;
  std::optional<double> seconds_left;
};

struct JobLearner {
  int rank = 0;
  std::string node;
  std::string state;
};

struct JobAnswer {
  std::string id;
  std::string name;
  std::string description;
  std::string team;
  std::string user;
  JobState state = JobState::kQueued;
  std::string code;
  std::string reason;
  Wanted wanted = Wanted::kRun;
  int priority = 0;
  int place_in_queue = 0;
  std::string starts_by;     // of who waits: at the latest, if that is known
  bool is_borrowed = false;  // runs beyond its team's quota
  int attempt = 0;
  int restarts = 0;
  int restarts_most = 0;
  std::string submitted;
  std::string started;
  std::string ended;
  std::string changed;
  Resources each;
  std::vector<JobLearner> learners;
  int learners_wanted = 0;
  JobProgress progress;
  std::string json;  // as it came
};

struct JobsAnswer {
  std::vector<JobAnswer> jobs;
  std::string next;  // for the next page; empty at the end
};

struct ChangeAnswer {
  std::string time;
  std::string state;
  std::string code;
  std::string reason;
  int attempt = 0;
};

struct LineAnswer {
  int learner = 0;
  int attempt = 0;
  std::int64_t sequence = 0;
  std::string time;
  std::string text;
  std::string json;
};

struct LinesAnswer {
  std::vector<LineAnswer> lines;
  std::string cursor;
  bool ended = false;  // nothing follows any more
};

struct MetricAnswer {
  int learner = 0;
  std::int64_t step = 0;
  std::string time;
  std::string name;
  std::optional<double> value;  // none where it is not finite
  std::string json;
};

struct MetricsAnswer {
  std::vector<MetricAnswer> metrics;
  std::string cursor;
  bool ended = false;
};

struct NodeAnswer {
  std::string name;
  bool is_ready = true;
  std::string not_ready;
  bool is_draining = false;
  Resources capacity;
  Resources held;
  std::vector<std::string> jobs;
};

struct QuotaAnswer {
  std::string team;
  int running = 0;
  int waiting = 0;
  Resources held;
  Resources borrowed;              // of what is held
  std::optional<Resources> quota;  // none set
};

// kFailed when the text is not what a server of this kind sends.
Result<JobAnswer> read_job(std::string_view json);
Result<JobsAnswer> read_jobs(std::string_view json);
Result<std::vector<ChangeAnswer>> read_history(std::string_view json);
Result<LinesAnswer> read_lines(std::string_view json);
Result<MetricsAnswer> read_metrics(std::string_view json);
Result<std::vector<NodeAnswer>> read_nodes(std::string_view json);
Result<std::vector<QuotaAnswer>> read_quota(std::string_view json);

}  // namespace tesser::platform
