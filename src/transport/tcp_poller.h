// All data connections of a device over TCP, progressed together. Internal to this folder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "transport/socket.h"
#include "transport/tcp_link.h"

namespace tesser::transport {

// Thread-safe. Nothing blocks.
class TcpPoller {
 public:
  Outcome<void> open();

  void add(const std::shared_ptr<TcpLink>& link);  // whose watch() is the caller's to call
  void remove(std::uint64_t token);
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // Readable while there is something to do.
  int event_descriptor() const { return epoll_.get(); }
  // Moves what can be moved, up to a bound; returns how often something moved.
  unsigned progress();
  bool idle();            // whether the system has taken all that is to be sent
  void finish_sending();  // to anybody

 private:
  std::shared_ptr<TcpLink> find(std::uint64_t token);

  Descriptor epoll_;
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<TcpLink>> links_;
};

}  // namespace tesser::transport
