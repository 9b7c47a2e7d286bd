// What a coordinator knows of its workers, filled by their reports.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/control_messages.h"
#include "runtime/train.h"

namespace tesser::runtime {

// A worker that the run cannot go on without.
struct WorkerTrouble {
  int worker = 0;
  std::string message;
  bool is_input = false;  // the user's input is wrong
};

// answer() is called by the threads of the control server, everything else by the coordinator's own.
class WorkerTable {
 public:
  WorkerTable(std::vector<WorkerTask> tasks, std::vector<WorkerPrograms> programs);

  // Answers a request; kInvalidInput refuses it.
  Result<std::string> answer(const std::string& path, const std::string& body);

  // Of a worker that this process has started.
  void set_process(int worker, std::int64_t process);
  // The name by which the user knows the machine on which it is started.
  void set_host(int worker, const std::string& host);

  // Blocks until something has been reported, or 50 ms.
  void wait();

  void allow(std::int64_t until_step, bool final);
  // From now on every report is answered with the end of the run.
  void abort();

  std::vector<int> missing() const;  // workers that have not joined
  bool all_prepared() const;
  bool all_ended() const;
  bool all_know_the_end() const;  // and have been told, those that are silent left out
  // Steps that all workers have done, in order, each once: the loss and metrics
  // of all, on average over replicas, the seconds of the slowest. kFailed when
  // workers of one replica disagree about the loss.
  Result<std::vector<WorkerStep>> take_steps();
  std::vector<std::pair<int, WrittenShards>> take_written();
  // Evaluations that all workers have made whose tasks ask for them, the first ones; in order, each once. kFailed when
  // they disagree.
  Result<std::vector<WorkerEvaluation>> take_evaluations();

  // The first worker that must be blamed for the end of the run. `died` says how each local process has ended, by
  // worker.
  std::optional<WorkerTrouble> trouble(const std::vector<std::optional<std::string>>& died) const;

  std::string name_of(int worker) const;  // "worker 1 (process 123 on host)", worker_name() with its process
  bool has_joined(int worker) const;
  // Of the whole run.
  std::vector<WorkerSummary> summaries() const;
  std::vector<OperatorTotal> operators() const;  // worker 0's
  std::vector<std::string> paths() const;        // the ways between workers, each once

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::optional<std::int64_t> process;  // known before it joins
    std::string host;                     // likewise; else empty
    std::optional<Joining> joining;
    Clock::time_point heard;
    std::vector<std::string> paths;
    std::optional<WorkerMemory> memory;
    std::deque<WorkerStep> steps;  // that not all have done
    std::int64_t last_step = -1;
    std::deque<WorkerEvaluation> evaluations;  // that not all have made
    std::int64_t last_evaluation = -1;         // its step
    WorkerSummary summary;
    std::optional<WorkerFailure> failure;
    Clock::time_point failed;
    std::vector<OperatorTotal> operators;
    bool ended = false;
    bool knows_the_end = false;
  };

  Result<std::string> join(const Joining& joining);
  Result<std::string> report(WorkerReport report);
  Result<WorkerStep> take_step_of(int replica);  // each of its workers has one
  std::string described(int worker) const;
  bool is_silent(const Entry& entry, std::chrono::milliseconds limit) const;

  const std::vector<WorkerTask> tasks_;
  const std::vector<WorkerPrograms> programs_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool news_ = false;
  ReportAnswer permission_;
  std::vector<Entry> entries_;
  std::vector<std::pair<int, WrittenShards>> written_;
};

}  // namespace tesser::runtime
