// The processes of a learner's command: found, signalled, ended.
//
// A process belongs to the command when it descends from the learner process (which is a subreaper: orphans come to
// it), or has TESSER_LEARNER with the learner's tag in its environment, as it was started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tesser::platform {

class ProcessTree {
 public:
  // `kept` are never taken for the command's, nor is this process or what it descends from.
  ProcessTree(std::string tag, std::set<pid_t> kept) : tag_(std::move(tag)), kept_(std::move(kept)) {}

  void keep(pid_t process) { kept_.insert(process); }
  void forget(pid_t process) { kept_.erase(process); }
  // Those that live, this moment.
  std::vector<pid_t> processes() const;
  void signal_all(int number) const;
  // SIGKILL until none is left; false when some are there after `patience` (in the kernel, for a disk that does not
  // answer). Does not take exit codes of children: `reap` is called between rounds for that.
  template <typename Reap>
  bool end_all(std::chrono::milliseconds patience, const Reap& reap) const {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
      reap();
      if (!kill_round()) {
        return true;
      }
      if (std::chrono::steady_clock::now() > deadline) {
        return false;
      }
    }
  }

 private:
  // Sends SIGKILL to all, waits a moment; false when there was none.
  bool kill_round() const;

  std::string tag_;
  std::set<pid_t> kept_;
};

// Clock ticks from the machine's start to the process's; none when there is no such process.
std::optional<std::int64_t> start_ticks(pid_t process);

}  // namespace tesser::platform
