// What device, channels, handshakes and the service thread share. Internal to this folder.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/channel.h"
#include "transport/device.h"
#include "transport/signal_area.h"
#include "transport/socket.h"
#include "transport/tcp_poller.h"
#include "transport/ucx_worker.h"

namespace tesser::transport {

class Service;

class DeviceCore : public std::enable_shared_from_this<DeviceCore> {
 public:
  static Outcome<std::shared_ptr<DeviceCore>> open(DeviceOptions options);
  ~DeviceCore();

  // Ends the service thread: farewell to all peers.
  void stop();

  const DeviceOptions& options() const { return options_; }
  std::uint64_t nonce() const { return nonce_; }
  const std::string& boot_id() const { return boot_id_; }
  const std::string& unix_name() const { return unix_name_; }
  std::string address() const;
  SignalArea& signals() { return signals_; }

  // Another device of this process; nullptr when there is none of that nonce.
  static std::shared_ptr<DeviceCore> find_in_process(std::uint64_t nonce);

  // Regions.
  Outcome<std::shared_ptr<MemoryRegion>> allocate(std::size_t bytes, const RegionOptions& options);
  std::shared_ptr<MemoryRegion> region(std::uint32_t id) const;  // nullptr when unknown
  std::vector<std::shared_ptr<MemoryRegion>> regions() const;
  // UCX, opened and all regions registered at the first call.
  Outcome<std::shared_ptr<UcxWorker>> open_ucx();
  std::shared_ptr<UcxWorker> ucx() const;  // nullptr before that

  // Channels.
  // `link`: its data connection, over TCP.
  void add_channel(const std::shared_ptr<Channel>& channel, const std::shared_ptr<TcpLink>& link, bool accepted);
  void remove_channel(const Channel& channel);
  std::vector<std::shared_ptr<Channel>> channels() const;
  std::shared_ptr<Channel> channel_of_token(std::uint64_t token) const;
  Outcome<std::shared_ptr<Channel>> accept(Deadline deadline);

  // A second connection of a handshake, which both sides know by its token: over a Unix socket for peers on the same
  // machine, over TCP for data. One that no handshake expects is closed.
  enum class Attachment : std::uint8_t { kUnix, kTcp };
  void expect_attachments(std::uint64_t token);
  void forget_attachments(std::uint64_t token);
  void attach(std::uint64_t token, Attachment kind, Descriptor socket);
  Outcome<Descriptor> take_attached(std::uint64_t token, Attachment kind, const std::string& peer, Deadline deadline);

  TcpPoller& tcp() { return tcp_; }

  // Ends a channel on the service thread, soon.
  void fail_channel(std::shared_ptr<Channel> channel, Failure failure, bool tell_peer);

  bool wait(const std::function<bool()>& ready, Deadline deadline);
  unsigned progress();
  bool anybody_spins() const { return spinners_.load(std::memory_order_relaxed) != 0; }
  // While there are receivers that no signal wakes (tail flags over UCX), sleepers look every millisecond.
  void add_unsignalled(int change) { unsignalled_.fetch_add(change, std::memory_order_relaxed); }

 private:
  DeviceCore(DeviceOptions options, std::uint64_t nonce, std::shared_ptr<MemoryRegion> signals);
  bool has_network() const { return ucx_for_progress_.load(std::memory_order_relaxed) != nullptr || !tcp_.empty(); }
  bool spin(const std::function<bool()>& ready, Deadline deadline);
  void take_message(const SignalMessage& message, std::string_view payload);

  const DeviceOptions options_;
  const std::uint64_t nonce_;
  const std::string boot_id_;
  const std::string unix_name_;
  SignalArea signals_;

  // Order of locks: setup_mutex_, UCX's lock, mutex_. UCX's messages look up channels and regions.
  std::mutex setup_mutex_;  // held while regions, channels and UCX are made known to one another
  std::atomic<std::uint32_t> next_region_{1};
  mutable std::mutex mutex_;  // what follows, for a look-up or a change
  std::map<std::uint32_t, std::shared_ptr<MemoryRegion>> regions_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::deque<std::shared_ptr<Channel>> accepted_;
  std::shared_ptr<UcxWorker> ucx_;
  std::atomic<UcxWorker*> ucx_for_progress_{nullptr};
  TcpPoller tcp_;

  std::mutex attach_mutex_;
  std::condition_variable attached_;
  std::set<std::uint64_t> expected_attachments_;
  std::map<std::pair<std::uint64_t, Attachment>, Descriptor> attachments_;

  std::atomic<int> spinners_{0};
  std::atomic<int> unsignalled_{0};
  std::unique_ptr<Service> service_;
};

std::uint64_t random_nonce();  // never 0

}  // namespace tesser::transport
