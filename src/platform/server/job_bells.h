// Tells those that wait for something about a job that it may have changed.
//
// Any thread. Internal to this folder.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace tesser::platform {

class JobBells {
 public:
  void ring(const std::string& job) {
    Bell& bell = bell_of(job);
    const std::lock_guard lock(bell.mutex);
    ++bell.rings;
    bell.changed.notify_all();
  }
  // To be asked before looking, and then given to wait().
  std::uint64_t rings(const std::string& job) {
    Bell& bell = bell_of(job);
    const std::lock_guard lock(bell.mutex);
    return bell.rings;
  }
  // Until it has rung more often, or the time is over, or all is; may return early.
  void wait(const std::string& job, std::uint64_t rings, std::chrono::steady_clock::time_point until) {
    Bell& bell = bell_of(job);
    std::unique_lock lock(bell.mutex);
    bell.changed.wait_until(lock, until, [&] { return bell.rings != rings || bell.is_over; });
  }
  void end() {
    for (Bell& bell : bells_) {
      const std::lock_guard lock(bell.mutex);
      bell.is_over = true;
      bell.changed.notify_all();
    }
  }
  bool is_over() {
    const std::lock_guard lock(bells_.front().mutex);
    return bells_.front().is_over;
  }

 private:
  struct Bell {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t rings = 0;
    bool is_over = false;
  };
  Bell& bell_of(const std::string& job) { return bells_[std::hash<std::string>()(job) % bells_.size()]; }

  std::array<Bell, 61> bells_;  // jobs share them: a ring too many is harmless
};

}  // namespace tesser::platform
