// Wakes the guardian's main thread when something may have changed: a marker on the volume, a learner in the engine,
// what the owner wants. Whoever waits looks at everything again.
//
// Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tesser::platform {

class Bell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    has_rung_ = true;
    changed_.notify_all();
  }
  // Returns at once when it has rung since the last wait.
  void wait_until(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [&] { return has_rung_; });
    has_rung_ = false;
  }
  void wait_for(std::chrono::milliseconds time) { wait_until(std::chrono::steady_clock::now() + time); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_rung_ = false;
};

}  // namespace tesser::platform
