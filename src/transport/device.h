// This process as a device for its peers, and the way to them. docs/transport.md explains the whole folder.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/channel.h"
#include "transport/failure.h"
#include "transport/memory_region.h"

namespace tesser::transport {

class DeviceCore;

enum class Paths : std::uint8_t {
  kAny,               // shared memory where it can be had, else RDMA where both sides have an adapter, else TCP
  kSharedMemoryOnly,  // a peer that cannot be reached so is a failure; the same with the next two
  kUcxOnly,           // RDMA through UCX, even on one machine
  kTcpOnly,           // TCP, even on one machine
  kNetworkOnly,       // RDMA where both sides have an adapter, else TCP, even on one machine
};

struct DeviceOptions {
  std::string name = "device";         // of this worker, in its peers' messages
  std::string listen = "127.0.0.1:0";  // HOST:PORT for connections; port 0: the system chooses
  std::string advertise;               // host by which peers reach this machine; empty: the one listened at
  std::uint64_t run = 0;               // peers of another run or epoch are refused
  std::uint32_t epoch = 0;
  Paths paths = Paths::kAny;
  std::string ucx_transports;  // as UCX_TLS: "rc", "ud"; empty: all for RDMA
  std::string ucx_devices;     // as UCX_NET_DEVICES: "mlx5_0:1"; empty: all
  // Address space for signals, 4096 bytes to 1 GiB: 64 for an end of a transfer, 8 for each notification that a queue
  // may hold unread. Pages cost memory when they are touched; RDMA pins all of them.
  std::size_t signal_bytes = std::size_t{4} << 20;
  std::chrono::microseconds spin{50};
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds silence{3500};  // after which a peer counts as failed
};

struct DeviceReport {
  std::string name;
  std::string address;
  std::string ucx;                    // version, or why it is not there
  std::vector<std::string> adapters;  // UCX's transports and adapters: "rc_verbs/mlx5_0:1"
  std::string why_no_rdma;            // empty when there is an adapter for it
  std::string locked_memory_limit;    // "8 MiB", "unlimited"
  std::string shared_huge_pages;      // what the kernel allows for HugePages::kTransparent
  std::uint64_t reserved_huge_pages = 0;
};

// Functions may be called from any thread. The destructor tells all peers farewell; channels made by the device then
// fail with kPeerClosed and may outlive it, regions too.
class Device {
 public:
  // Starts listening and the service thread. Does not block.
  static Outcome<std::unique_ptr<Device>> open(DeviceOptions options);
  ~Device();

  const std::string& name() const;
  // "HOST:PORT/NONCE", for a peer's connect(), in whatever way it gets there.
  std::string address() const;
  std::uint64_t nonce() const;

  // Blocks for system calls, and with an adapter for the registration. The region is published to all channels.
  Outcome<std::shared_ptr<MemoryRegion>> allocate(std::size_t bytes, const RegionOptions& options = {});

  // Makes a channel to the device at "HOST:PORT/NONCE", or to whichever is at "HOST:PORT". Blocks, to the deadline at
  // most; a peer that does not listen yet is waited for.
  Outcome<std::shared_ptr<Channel>> connect(std::string_view address, Deadline deadline);
  // The next channel that a peer has made to this device. Blocks, to the deadline at most.
  Outcome<std::shared_ptr<Channel>> accept(Deadline deadline);

  // Spins for options.spin and then sleeps until `ready` returns true, which is evaluated on this thread again and
  // again: it must be quick and must become true by a signal, completion or failure of this device. False when the
  // deadline passes first.
  bool wait(const std::function<bool()>& ready, Deadline deadline);
  // Has all who wait() evaluate what they wait for, when a thread of this process has changed it.
  void wake();
  // One round for what needs a CPU (TCP, UCX). Not needed on mapped paths; a service thread does it for those who do
  // not.
  void progress();

  // May load UCX to find its adapters.
  DeviceReport report() const;

  DeviceCore& core() const { return *core_; }  // for this folder

 private:
  explicit Device(std::shared_ptr<DeviceCore> core) : core_(std::move(core)) {}

  std::shared_ptr<DeviceCore> core_;
};

}  // namespace tesser::transport
