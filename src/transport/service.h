// The service thread of a device: connections, control messages, heartbeats, TCP and UCX when nobody else progresses
// them. Internal to this folder.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "transport/channel.h"
#include "transport/socket.h"

namespace tesser::transport {

class Service {
 public:
  Service(DeviceCore& core, Listener tcp, Descriptor unix_socket);
  ~Service();

  const HostPort& address() const { return tcp_.address; }
  Outcome<void> start();
  // Says farewell to all peers and ends the thread and all handshakes. Blocks for kHandshakeTime and kFabricTime at
  // most.
  void stop();
  void post(std::function<void()> function);  // runs it on the service thread, soon
  void wake();
  // Ends a channel. On the service thread.
  void fail(const std::shared_ptr<Channel>& channel, Failure failure, bool tell_peer);

 private:
  struct Handshake {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> over;
  };

  void run();
  int progress_networks(int timeout_ms);
  void watch_new_channels();
  void accept_connections(int listener, bool is_tcp);
  void read(const std::shared_ptr<Channel>& channel);
  void beat(bool was_stalled);
  void run_posted();
  void join_handshakes(bool all);
  void say_farewell();

  DeviceCore& core_;
  Listener tcp_;
  Descriptor unix_;
  Descriptor epoll_;
  Descriptor wake_;
  bool watches_ucx_ = false;
  std::unordered_map<int, std::shared_ptr<Channel>> watched_;
  std::list<Handshake> handshakes_;
  Deadline next_beat_ = Clock::now();

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tesser::transport
