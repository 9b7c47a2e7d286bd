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

  // `ready` is called, on a thread of this object's own, with a connection on which something has come. One on which
  // nothing comes for `time` is closed. All ends when `stop`, a descriptor, becomes readable.
  static Result<std::unique_ptr<IdleConnections>> open(int stop, std::chrono::milliseconds time, Ready ready);
  IdleConnections(const IdleConnections&) = delete;
  IdleConnections& operator=(const IdleConnections&) = delete;
  ~IdleConnections();  // closes them; `stop` must be readable

  void add(std::unique_ptr<Connection> connection);

 private:
  struct Idle {
    std::unique_ptr<Connection> connection;
    Connection::Clock::time_point until;
  };

  IdleConnections(int events, std::chrono::milliseconds time, Ready ready)
      : events_(events), time_(time), ready_(std::move(ready)) {}
  void watch(int stop);
  void close_old_ones();

  const int events_;  // epoll's descriptor
  const std::chrono::milliseconds time_;
  const Ready ready_;
  std::mutex mutex_;
  std::map<int, Idle> connections_;  // by socket
  std::thread thread_;
};

}  // namespace tesser::control
