// The threads that answer requests: as many as work at a time, and one more for each that waits. Internal to this
// folder.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace tesser::control {

// Any thread. Threads are started when they are needed and stay.
class RequestThreads {
 public:
  RequestThreads(int working, int waiting) : most_working_(working), most_waiting_(waiting) {}
  RequestThreads(const RequestThreads&) = delete;
  RequestThreads& operator=(const RequestThreads&) = delete;
  ~RequestThreads() { stop(); }

  void add(std::function<void()> task);  // dropped after stop()
  // False when as many as may wait do so.
  bool begin_to_wait();
  void end_waiting();
  // Runs what was added, and ends the threads. Idempotent.
  void stop();

 private:
  void start_threads();  // with the lock
  void work();

  const int most_working_;
  const int most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::list<std::thread> threads_;
  int idle_ = 0;
  int waiting_ = 0;
  bool stops_ = false;
};

}  // namespace tesser::control
