// Reads a job's metrics (docs/formats/logs.md): of one learner or of all, from any cursor, without loss or duplicate.
//
// One thread at a time per object; any number of readers beside the collector that writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/volume.h"

namespace tesser::platform {

struct Metric {
  int learner = 0;
  std::int64_t step = 0;
  std::int64_t time = 0;  // microseconds since 1970
  std::string name;
  double value = 0;  // not a number where the file has null
};

struct MetricsPage {
  std::vector<Metric> metrics;
  std::string cursor;  // to go on from
};

class MetricsReader {
 public:
  // `learner`: of one, else of all there are. `name`: only metrics of this name; empty: all.
  MetricsReader(Volume volume, std::optional<int> learner, std::string name = "");

  // At most `limit` metrics from the cursor on ("": the beginning), learner after learner; none when there are no more
  // yet, and then the cursor may still be a later one. kInvalidInput when it is no cursor.
  Result<MetricsPage> read(const std::string& cursor, std::size_t limit);
  // Whether there is something unread behind the cursor, of whatever name; one system call a learner.
  bool has_more(const std::string& cursor);
  // read(), after waiting in this thread up to `wait` for the first metric.
  Result<MetricsPage> read_waiting(const std::string& cursor, std::size_t limit, std::chrono::milliseconds wait);

 private:
  Volume volume_;
  std::optional<int> only_;
  std::string name_;
  std::vector<int> learners() const;
};

// progress.json.
struct Progress {
  int attempt = 0;
  std::int64_t step = 0;
  std::optional<std::int64_t> steps;  // in all
  std::optional<double> seconds_left;
  std::int64_t time = 0;  // microseconds since 1970
};
// kNotFound before the first step.
Result<Progress> read_progress(const Volume& volume);

// The last value of each metric and the progress of a job in Prometheus' text format, for one that is scraped with
// others: lines "tesser_metric{job="...",learner="0",name="loss"} 0.25", "tesser_metric_step", "tesser_job_step",
// "tesser_job_steps", "tesser_job_seconds_left". Lines of several jobs are put together by prometheus_text(), which
// writes each metric's type once.
struct JobFigures {
  std::string job;
  std::vector<Metric> last;  // of each learner and name
  std::optional<Progress> progress;
};
// Reads no more than the end of each learner's file (1 MiB): metrics that have not come again since are left out.
Result<JobFigures> last_figures(const std::string& job, const Volume& volume);
std::string prometheus_text(const std::vector<JobFigures>& jobs);

}  // namespace tesser::platform
