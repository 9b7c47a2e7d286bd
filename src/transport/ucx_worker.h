// UCX behind an interface without its types: ucx_verbs_worker.cc, or ucx_absent.cc where UCX is not there at build
// time. Internal to this folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/failure.h"
#include "transport/memory_region.h"
#include "transport/peer_path.h"

namespace tesser::transport {

// A notification, perhaps with payload, that came as a message.
struct SignalMessage {
  std::uint64_t token = 0;   // of the receiving channel
  std::uint64_t value = 0;   // for the signal word
  std::uint64_t offset = 0;  // of the payload in the region
  std::uint32_t region = 0;
  std::uint32_t signal = 0;
};

struct UcxOptions {
  std::string transports;  // "rc", "ud", "dc" or several; empty: those in UCX_TLS, else all. Others are left out
  std::string devices;     // "mlx5_0:1"; empty: those in UCX_NET_DEVICES, else all
};

struct UcxEvents {
  // A message has come; inside progress().
  std::function<void(const SignalMessage&, std::string_view payload)> message;
  // A peer's endpoint has failed; inside progress(), so it must only take note.
  std::function<void(std::uint64_t token, Failure)> error;
};

std::string ucx_description();  // "UCX 1.13.1", or why there is none
// Those that the options allow, by transport: "rc_verbs/mlx5_0:1". Starts UCX only where the kernel shows an adapter.
std::vector<std::string> ucx_adapters(const UcxOptions& options = {});

// Empty when this build and machine have an adapter for RDMA that UCX can use with these options; else why not, for
// people ("no adapter for RDMA: /sys/class/infiniband is empty"). Starts UCX only where the kernel shows an adapter;
// the answer for given options is found once in a process. Thread-safe.
std::string why_no_rdma(const UcxOptions& options = {});
inline bool has_rdma_adapter(const UcxOptions& options = {}) { return why_no_rdma(options).empty(); }

// Thread-safe, with one lock. Nothing here blocks but connect() and the end of a path.
class UcxWorker : public std::enable_shared_from_this<UcxWorker> {
 public:
  static Outcome<std::shared_ptr<UcxWorker>> open(const UcxOptions& options, UcxEvents events);
  virtual ~UcxWorker() = default;

  virtual std::string address() = 0;
  // Registers once; later calls give the same key. The region must outlive the worker's use.
  virtual Outcome<std::string> register_region(const std::shared_ptr<MemoryRegion>& region) = 0;
  // Returns when messages have gone to the peer and back, which must connect as well. Blocks to the deadline at most.
  virtual Outcome<std::unique_ptr<PeerPath>> connect(const std::string& peer, std::uint64_t token,
                                                     const std::string& address, Deadline deadline) = 0;
  // For RemoteRegion. `path` must be one of connect().
  virtual Outcome<std::shared_ptr<const void>> unpack_key(PeerPath& path, const std::string& peer,
                                                          const std::string& key) = 0;

  virtual int event_descriptor() = 0;
  // Whether the event descriptor will become readable when there is something to do; false: progress first.
  virtual bool arm() = 0;
  // Returns how much was done; 0 also when another thread is at it.
  virtual unsigned progress() = 0;
  virtual bool idle() = 0;  // no operation in flight
};

}  // namespace tesser::transport
