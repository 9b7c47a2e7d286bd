// What a worker did in its last steps, for a Chrome trace.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/executor.h"

namespace tesser::runtime {

// Keeps the spans of the last `steps` steps of an executor under ExecutorOptions::trace, which must outlive it.
class WorkerTrace {
 public:
  WorkerTrace(const Executor& executor, std::int64_t steps) : executor_(executor), steps_(steps) {}

  void add_step(std::int64_t step);
  // The events as members of a JSON array, each after a comma. Times are microseconds after `begin`, microseconds since
  // 1970.
  Result<void> write(const std::filesystem::path& file, int worker, std::int64_t begin) const;

 private:
  const Executor& executor_;
  const std::int64_t steps_;
  std::deque<std::pair<std::int64_t, std::vector<NodeSpan>>> kept_;  // by step
};

}  // namespace tesser::runtime
