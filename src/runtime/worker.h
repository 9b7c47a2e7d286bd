// One worker of a run: takes its task from the coordinator, finds its peers, runs its lowered program and reports.
#pragma once

#include <atomic>
#include <string>

#include "base/result.h"

namespace tesser::runtime {

struct WorkerOptions {
  std::string coordinator;  // "http://HOST:PORT"
  int worker = 0;
  std::string token;   // of the run
  std::string listen;  // host by which peers reach this machine; empty: the one that leads to the coordinator
  // Where it becomes true, a worker that has not found its coordinator yet ends; one that has ends with it.
  const std::atomic<bool>* stop = nullptr;
};

// Blocks until the run has ended; a failure is reported to the coordinator too. The process may end inside (exit code
// 1) when the run is aborted or the coordinator lost while a kernel runs.
Result<void> run_worker(const WorkerOptions& options);

}  // namespace tesser::runtime
