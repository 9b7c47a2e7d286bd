// UcxWorker over verbs. All calls of UCX are made under one lock; its callbacks run inside progress().
// Internal to ucx_*.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "transport/ucx_context.h"
#include "transport/ucx_endpoint.h"
#include "transport/ucx_worker.h"

namespace tesser::transport {

class VerbsWorker final : public UcxWorker {
 public:
  VerbsWorker(UcxContext context, UcxEvents events) : events_(std::move(events)), context_(std::move(context)) {}
  ~VerbsWorker() override;
  Outcome<void> start();

  std::string address() override;
  Outcome<std::string> register_region(const std::shared_ptr<MemoryRegion>& region) override;
  Outcome<std::unique_ptr<PeerPath>> connect(const std::string& peer, std::uint64_t token, const std::string& address,
                                             Deadline deadline) override;
  Outcome<std::shared_ptr<const void>> unpack_key(PeerPath& path, const std::string& peer,
                                                  const std::string& key) override;
  int event_descriptor() override { return event_descriptor_; }
  bool arm() override;
  unsigned progress() override;
  bool idle() override;

  // Operations of one peer, for its path. By the adapter itself:
  void put(const std::shared_ptr<Endpoint>& endpoint, const std::byte* from, const RemoteRegion& to,
           std::uint64_t offset, std::size_t bytes, Completion& completion);
  void get(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& from, std::uint64_t offset, std::byte* to,
           std::size_t bytes, Completion& completion);
  void flush(const std::shared_ptr<Endpoint>& endpoint, Completion& completion, const MessageHeader* then_notify);
  void put_word(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& signals, std::uint32_t signal,
                std::uint64_t value, Completion& completion);
  // By messages, for lanes without remote access:
  void write_in_chunks(const std::shared_ptr<Endpoint>& endpoint, const std::byte* from, const RemoteRegion& to,
                       std::uint64_t offset, std::size_t bytes, Completion& completion);
  void read_in_chunks(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& from, std::uint64_t offset,
                      std::byte* to, std::size_t bytes, Completion& completion);
  void flush_chunks(const std::shared_ptr<Endpoint>& endpoint, Completion& completion);
  void signal_after_chunks(const std::shared_ptr<Endpoint>& endpoint, MessageHeader message, Completion& completion);
  // On both: a message with a payload, which is copied.
  void send(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message, const std::byte* payload,
            std::size_t bytes, Completion& completion);

  // Ends all operations of the peer with `failure`. Blocks for kTimeToCancel at most.
  void abort(const std::shared_ptr<Endpoint>& endpoint, const Failure& failure);
  void close(const std::shared_ptr<Endpoint>& endpoint);

 private:
  static void on_sent(void* request, ucs_status_t status, void* operation);
  static ucs_status_t on_message(void* worker, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* parameters);
  static void on_error(void* worker, ucp_ep_h handle, ucs_status_t status);

  Outcome<void> greet(const std::shared_ptr<Endpoint>& endpoint, Deadline deadline);
  // What follows is called under the lock.
  std::unique_ptr<Operation> begin(const std::shared_ptr<Endpoint>& endpoint, Completion* completion);
  void submitted(std::unique_ptr<Operation> operation, ucs_status_ptr_t status);
  void ended(std::unique_ptr<Operation> operation, ucs_status_t status);
  void send_locked(std::unique_ptr<Operation> operation);
  unsigned progress_locked();
  void report(Endpoint& endpoint, FailureKind kind, std::string message);
  static ucp_request_param_t parameters(Operation& operation);

  // ucx_chunks.cc
  void send_soon(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message, Completion* completion);
  unsigned send_chunks(const std::shared_ptr<Endpoint>& endpoint);
  void take(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message, std::string_view payload);
  void take_chunk(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message, std::string_view payload);
  void take_read(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message);
  void take_read_chunk(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message,
                       std::string_view payload);
  void act(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message, std::string_view payload);
  void abandon_chunks(Endpoint& endpoint, const Failure& failure);
  std::shared_ptr<MemoryRegion> region_with(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes) const;

  struct Registered {
    std::shared_ptr<MemoryRegion> region;
    ucp_mem_h memory = nullptr;
    std::string key;
  };

  UcxEvents events_;
  std::mutex mutex_;
  UcxContext context_;
  ucp_worker_h worker_ = nullptr;
  int event_descriptor_ = -1;
  std::map<std::uint32_t, Registered> regions_;
  std::map<std::uint64_t, std::shared_ptr<Endpoint>> endpoints_;  // by token
  std::deque<std::unique_ptr<Operation>> to_send_;                // by the next progress, not from inside a callback
  std::set<std::shared_ptr<Endpoint>> with_chunks_;               // endpoints that have chunks to send
  std::size_t in_flight_ = 0;
  bool must_outlive_process_ = false;  // has an endpoint that cannot be closed
};

// The path of a channel over an endpoint (ucx_path.cc).
std::unique_ptr<PeerPath> make_ucx_path(std::shared_ptr<VerbsWorker> worker, std::shared_ptr<Endpoint> endpoint);
Endpoint& endpoint_of(PeerPath& path);

}  // namespace tesser::transport
