#include "control/request_threads.h"

#include <system_error>
#include <utility>

namespace tesser::control {

void RequestThreads::add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stops_) {
      return;
    }
    tasks_.push_back(std::move(task));
    start_threads();
  }
  changed_.notify_one();
}

bool RequestThreads::begin_to_wait() {
  const std::lock_guard lock(mutex_);
  if (waiting_ >= most_waiting_ || stops_) {
    return false;
  }
  ++waiting_;
  start_threads();
  return true;
}

void RequestThreads::end_waiting() {
  const std::lock_guard lock(mutex_);
  --waiting_;
}

void RequestThreads::start_threads() {
  while (static_cast<std::size_t>(idle_) < tasks_.size() &&
         static_cast<int>(threads_.size()) < most_working_ + waiting_) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // the system has no more; those that are there go on
      return;
    }
    ++idle_;  // as it will be
  }
}

void RequestThreads::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty() || stops_; });
    if (tasks_.empty()) {
      return;
    }
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_;
    lock.unlock();
    task();
    lock.lock();
    ++idle_;
  }
}

void RequestThreads::stop() {
  std::list<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& each : threads) {
    each.join();
  }
}

}  // namespace tesser::control
