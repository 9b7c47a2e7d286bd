// How many bytes a second a tenant may have moved, shared by the cores that work for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace tesser::hub {

// Any thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RateLimit(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Takes the bytes from the allowance, and says when they may be moved. An allowance not used is kept for a twentieth
  // of a second.
  Clock::time_point take(std::uint64_t bytes) {
    constexpr auto kKept = std::chrono::milliseconds(50);
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    next_ = std::max(next_, now - kKept);
    const Clock::time_point begin = next_;
    next_ += std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second_));
    return begin;
  }

 private:
  const double bytes_per_second_;
  std::mutex mutex_;
  Clock::time_point next_{};
};

}  // namespace tesser::hub
