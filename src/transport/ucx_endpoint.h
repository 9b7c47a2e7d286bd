// What a VerbsWorker knows of one peer. Internal to ucx_*.cc; everything under the worker's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include "transport/completion.h"
#include "transport/failure.h"
#include "transport/memory_region.h"
#include "transport/ucx_message.h"

namespace tesser::transport {

class VerbsWorker;

// A write, or the answer to a peer's read, that goes out in chunks. The completion has been begun once for each chunk.
struct ChunkedTransfer {
  MessageHeader next;  // of the next chunk
  const std::byte* from = nullptr;
  std::size_t bytes = 0;                // left to be sent
  std::shared_ptr<MemoryRegion> owner;  // of `from`, for an answer
  Completion* completion = nullptr;
};

// A read by request whose answer is coming.
struct ChunkedRead {
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  std::size_t missing = 0;
  Completion* completion = nullptr;
};

struct Endpoint {
  ucp_ep_h handle = nullptr;  // nullptr once aborted
  std::string peer;
  std::uint64_t token = 0;
  std::string lanes;              // "rc_verbs/mlx5_0:1, ud_verbs/mlx5_0:1"
  bool has_remote_access = true;  // the adapter itself writes and reads the peer's memory
  std::optional<Failure> failure;
  std::string link_error;  // what UCX says of it, if it says something
  Completion greeting;     // the peer's answer to the first message
  std::size_t in_flight = 0;
  std::vector<Completion*> broken;  // of operations that failed before the channel did, whose reason is awaited

  // What follows is for lanes without remote access (ucx_chunks.cc).
  std::deque<ChunkedTransfer> outgoing;
  std::size_t chunks_in_flight = 0;
  std::uint64_t chunks_begun = 0;  // numbers given to chunks of writes, sent or not
  std::uint64_t requests = 0;      // numbers given to reads and flushes; the greeting is 0
  std::map<std::uint64_t, ChunkedRead> reads;
  std::map<std::uint64_t, Completion*> flushes;
  std::uint64_t placed = 0;              // all of the peer's chunks up to this number are in place
  std::set<std::uint64_t> placed_early;  // and these beyond it
  std::vector<MessageHeader> held;       // signals and flushes that wait for chunks
  Completion serving;                    // of answers; nobody waits for it
};

// One operation of UCX until its callback.
struct Operation {
  VerbsWorker* worker = nullptr;
  std::shared_ptr<Endpoint> endpoint;
  Completion* completion = nullptr;  // nullptr: nobody waits
  bool notifies_after = false;       // a flush, after which the message goes
  bool is_chunk = false;
  MessageHeader message;
  std::string copied;               // payload, where it does not stay with its owner
  const std::byte* from = nullptr;  // payload otherwise
  std::size_t bytes = 0;
  std::shared_ptr<MemoryRegion> owner;
};

}  // namespace tesser::transport
