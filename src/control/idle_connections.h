// Connections between two requests, which need no thread. Internal to this folder.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "control/connection.h"

namespace tesser::control {

// Any thread.
class IdleConnections {
 public:
  using Ready = std::function<void(std::unique_ptr<Connection>)>;

  struct Limits {
    std::chrono::milliseconds idle_time;     // after which one on which nothing comes is closed
    std::chrono::milliseconds request_time;  // after which one with a part of a request is given to `late`
  };

  // `ready` is called, on a thread of this object's own, with a connection on which something has come. All ends when
  // `stop`, a descriptor, becomes readable.
  static Result<std::unique_ptr<IdleConnections>> open(int stop, Limits limits, Ready ready, Ready late);
  IdleConnections(const IdleConnections&) = delete;
  IdleConnections& operator=(const IdleConnections&) = delete;
  ~IdleConnections();  // closes them; `stop` must be readable

  void add(std::unique_ptr<Connection> connection);

 private:
  struct Idle {
    std::unique_ptr<Connection> connection;
    Connection::Clock::time_point until;
  };

  IdleConnections(int events, Limits limits, Ready ready, Ready late)
      : events_(events), limits_(limits), ready_(std::move(ready)), late_(std::move(late)) {}
  void watch(int stop);
  void close_old_ones();

  const int events_;  // epoll's descriptor
  const Limits limits_;
  const Ready ready_;
  const Ready late_;
  std::mutex mutex_;
  std::map<int, Idle> connections_;  // by socket
  std::thread thread_;
};

}  // namespace tesser::control
