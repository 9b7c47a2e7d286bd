// Jobs as they came to a cluster, for replaying them.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

struct TraceJob {
  std::string id;
  double submitted = 0;    // seconds from the begin of the trace
  double run_seconds = 0;  // that it runs with all its accelerators
  std::int64_t accelerators = 1;
  std::string team;
  int priority = 50;
};

// CSV with a header line. Columns: app_id, submit_time (seconds), num_jobs (accelerators asked for), and either service
// (accelerator seconds, as the Philly traces of this form have it) or run_time (seconds); optionally team and
// priority. Others are passed over. kInvalidInput names line and column. Sorted by submission.
Result<std::vector<TraceJob>> read_trace(std::string_view csv, const std::string& where);

struct SyntheticTrace {
  std::size_t jobs = 100'000;
  double load = 0.9;                   // of the accelerators, on average
  std::int64_t accelerators = 80'000;  // in the cluster
  int teams = 10;
  std::uint64_t seed = 1;
};
// Sizes and run times as far apart as those of Philly: 60% of the jobs ask for one accelerator, the largest for 128;
// half of them run less than a quarter of an hour, the mean runs five hours.
std::vector<TraceJob> make_trace(const SyntheticTrace& settings);

}  // namespace tesser::platform
