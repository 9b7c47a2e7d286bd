// The collector as a child of the learner process, started again when it dies.
//
// One thread; the owner takes exit codes and hands them over.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "base/result.h"
#include "platform/learner/collector.h"

namespace tesser::platform {

class CollectorProcess {
 public:
  // `tag`: what the command's processes have in their environment: the collector ends them when the learner process
  // has died.
  CollectorProcess(CollectorOptions options, std::string tag);
  CollectorProcess(const CollectorProcess&) = delete;
  CollectorProcess& operator=(const CollectorProcess&) = delete;
  ~CollectorProcess();

  void set_options(CollectorOptions options) { options_ = std::move(options); }
  Result<void> start();
  pid_t process() const { return process_; }  // 0: none now

  // The process has ended; false when it is not the collector's.
  bool ended(pid_t process, int status);
  // True when a new one was started.
  bool restart_when_due();

  // The command has ended. Waits until its log is complete and durable; takes the exit codes of all children meanwhile.
  Result<void> finish(std::chrono::milliseconds patience);

 private:
  int collect(pid_t learner) const;

  CollectorOptions options_;
  std::string tag_;
  pid_t process_ = 0;
  int finish_ = -1;  // readable once the command has ended
  bool is_started_ = false;
  bool is_finished_ = false;
  std::chrono::steady_clock::time_point restart_at_;
};

}  // namespace tesser::platform
