// Operations in flight, counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/failure.h"

namespace tesser::transport {

// Given to asynchronous operations, as many as one likes (a batch). Done when all of them have ended, well or not. The
// caller owns it and keeps it, and the memory the operations use, until done(). May be used again after done().
//
// Any thread may ask; operations end it from whatever thread progresses them.
class Completion {
 public:
  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool done() const { return pending_.load(std::memory_order_acquire) == 0; }

  // Once done: whether all operations succeeded, or the first failure.
  Outcome<void> outcome() const {
    if (!failed_.load(std::memory_order_acquire)) {
      return {};
    }
    const std::lock_guard lock(mutex_);
    return tl::unexpected<Failure>(*failure_);
  }

  // Forgets a failure. Only when done.
  void reset() {
    const std::lock_guard lock(mutex_);
    failure_.reset();
    failed_.store(false, std::memory_order_release);
  }

  // For the paths of this folder: each begin() is followed by one finish() or fail().
  void begin() { pending_.fetch_add(1, std::memory_order_relaxed); }
  void finish() { pending_.fetch_sub(1, std::memory_order_release); }
  void fail(const Failure& failure) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) {
        failure_ = std::make_unique<Failure>(failure);
      }
      failed_.store(true, std::memory_order_release);
    }
    finish();
  }

 private:
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::unique_ptr<const Failure> failure_;
};

}  // namespace tesser::transport
