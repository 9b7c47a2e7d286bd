// Processes that a coordinator starts: workers on its own machine, and those that start one elsewhere.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::runtime {

struct ProcessOptions {
  std::vector<std::string> command;      // the first is the program's path, or its name on PATH
  std::vector<std::string> environment;  // "NAME=VALUE", besides this process's own
  std::filesystem::path log;             // standard output and standard error
  // Of the process's standard input, which is closed after it only when the process is to end; without: this process's.
  std::optional<std::string> input;
  bool relays = false;  // it ends as a shell does when the process that it waits for was killed by a signal
};

// One child process; it ends with this process, and at the latest with this object. Move-only; belongs to the thread
// that started it, which must outlive it.
class WorkerProcess {
 public:
  static Result<WorkerProcess> start(const ProcessOptions& options);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess();

  pid_t id() const { return id_; }
  // How it ended, in words: "was killed by signal 9 (Killed)", "ended with exit code 1"; nothing while it runs.
  std::optional<std::string> how_it_ended();
  bool is_stopped() const;  // by a signal
  void kill();
  // The last lines of its log, indented; empty when there are none.
  std::string last_lines(int count) const;

 private:
  WorkerProcess(pid_t id, std::filesystem::path log, int input, bool relays);
  void close_input();

  pid_t id_ = -1;
  int input_ = -1;
  bool relays_ = false;
  std::filesystem::path log_;
  std::optional<int> status_;  // once it has been waited for
};

}  // namespace tesser::runtime
