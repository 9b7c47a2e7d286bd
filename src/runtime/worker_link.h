// A worker's line to its coordinator: reports leave on a thread of their own, answers say how far the worker may run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "control/control_http.h"
#include "runtime/control_messages.h"

namespace tesser::runtime {

enum class Permission : std::uint8_t { kRun, kEnd, kAbort };

// Reports leave at once when there is something to report, and twice a second in any case, which tells the coordinator
// that this worker lives. When the coordinator has not answered for three seconds the process ends itself, whatever
// its other threads do. Functions may be called from any thread.
class WorkerLink {
 public:
  WorkerLink(std::unique_ptr<control::ControlClient> client, int worker);
  ~WorkerLink();
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  // Adds to the next report.
  void report_paths(std::vector<std::string> paths);
  void report_memory(const WorkerMemory& memory);
  void report_step(WorkerStep step);
  void report_written(WrittenShards written);
  void report_evaluation(WorkerEvaluation evaluation);

  // Blocks until the coordinator has said whether the step after `steps_done` is to be run.
  Permission wait_for_permission(std::int64_t steps_done);
  // Whether the run is over for this worker: it was aborted, or the coordinator is gone. `reason` says which.
  bool is_cancelled() const;
  std::string reason() const;

  // The last report. end() blocks until all workers have ended, since peers may still take what this one has sent, and
  // fail() until the coordinator has it; both no longer than there is a coordinator.
  void end(std::vector<OperatorTotal> operators);
  void fail(WorkerFailure failure);

 private:
  void run();
  bool has_news() const;  // under the mutex
  void take_answer(const Result<std::string>& answer, const WorkerReport& sent);
  void wait_until_sent(std::unique_lock<std::mutex>& guard);

  const std::unique_ptr<control::ControlClient> client_;
  const int worker_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  WorkerReport pending_;
  ReportAnswer answer_;
  std::chrono::steady_clock::time_point answered_;  // when the coordinator answered last
  bool cancelled_ = false;
  std::string reason_;
  bool stopping_ = false;
  bool ended_ = false;
  bool is_asked_ = false;  // somebody waits for an answer, so reports do not wait for news
  bool sending_ = false;

  std::thread thread_;
};

}  // namespace tesser::runtime
