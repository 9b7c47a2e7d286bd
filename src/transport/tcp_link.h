// One peer's data connection over TCP (docs/transport.md, paths and memory ordering). Internal to this folder.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/completion.h"
#include "transport/failure.h"
#include "transport/memory_region.h"
#include "transport/peer_path.h"
#include "transport/socket.h"
#include "transport/strided.h"
#include "transport/tcp_message.h"

namespace tesser::transport {

class DeviceCore;

// Messages go out in the order of the calls and are handled by the peer in that order. Any thread may call anything;
// nothing blocks, and receiving never waits for sending. Locks: receive_mutex_ before send_mutex_ or reads_mutex_.
class TcpLink {
 public:
  TcpLink(DeviceCore& core, std::string peer, std::uint64_t token, Descriptor socket);

  std::uint64_t token() const { return token_; }

  // The payload is gathered from `source` at `from`. Completes when the system has taken all of it.
  void write(const std::byte* from, const Strided& source, TcpMessage message, Completion& completion);
  // Completes when the answer lies at `target` at `to`; with no bytes: when the peer has handled all before.
  void read(TcpMessage request, std::byte* to, const Strided& target, Completion& completion);

  // From here on `epoll` says when progress() has something to do.
  void watch(int epoll);
  // Moves what the socket takes and gives, up to a bound; returns how often something moved. 0 where another thread is
  // at it.
  unsigned progress(std::uint32_t events);
  // What PeerPath says.
  void take_arrived(bool all);
  bool idle();            // whether the system has taken all that is to be sent
  void finish_sending();  // the peer sees the end behind all that was sent
  void abort(const Failure& failure);

 private:
  struct Outgoing {
    std::string head;  // message, and the payload of short ones
    std::size_t head_sent = 0;
    const std::byte* from = nullptr;
    std::optional<RunCursor> payload;
    std::shared_ptr<const MemoryRegion> region;  // of an answer
    Completion* completion = nullptr;            // nullptr for requests and answers
  };
  struct Read {
    std::byte* to = nullptr;
    Strided target;
    Completion* completion = nullptr;
  };
  struct Incoming {
    TcpMessage message;
    std::byte* to = nullptr;  // nullptr: nobody wants it any more
    std::optional<RunCursor> payload;
    bool has_short_runs = false;
    std::shared_ptr<const MemoryRegion> region;
    Completion* completion = nullptr;  // of a read

    std::uint64_t left() const { return payload ? payload->left() : 0; }
  };

  // tcp_link.cc
  bool enqueue(Outgoing outgoing);
  unsigned flush_locked(std::uint64_t most);
  std::uint64_t sent_locked(std::uint64_t bytes);
  std::size_t pack_locked(const std::byte* from, RunCursor& cursor, std::size_t used);
  void watch_locked(bool for_sending);
  void ended(Failure failure, bool tell_peer);

  // tcp_receive.cc
  unsigned receive_locked(std::uint64_t most);
  bool parse_locked();
  Outcome<void> begin_locked(TcpMessage message);
  Outcome<void> begin_write_locked();
  Outcome<void> answer_locked(const TcpMessage& request);
  void complete_locked();
  void take_payload_locked(std::uint64_t bytes);
  void place_buffered_locked();

  DeviceCore& core_;
  const std::string peer_;
  const std::uint64_t token_;
  const Descriptor socket_;
  std::atomic<bool> ended_{false};  // nothing is sent any more

  std::mutex send_mutex_;
  std::deque<Outgoing> outgoing_;
  std::size_t answers_ = 0;         // in outgoing_
  std::optional<Failure> aborted_;  // changes under both mutexes, so either is enough to read it
  std::vector<std::byte> packed_;   // short runs on their way out
  int epoll_ = -1;
  bool watched_for_sending_ = false;

  std::mutex receive_mutex_;
  static constexpr std::size_t kBufferBytes = 16 << 10;
  std::array<std::byte, kBufferBytes> buffer_;  // messages and the begin of payloads
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  Incoming incoming_;
  bool no_more_comes_ = false;
  std::vector<std::byte> nowhere_;  // where unwanted payload goes

  std::mutex reads_mutex_;
  std::unordered_map<std::uint64_t, Read> reads_;
  std::uint64_t next_read_ = 0;
};

std::unique_ptr<PeerPath> make_tcp_path(std::shared_ptr<TcpLink> link);

}  // namespace tesser::transport
