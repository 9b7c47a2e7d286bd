// Sockets of the control connection and the frames on them (docs/transport.md, wire formats). Internal to this folder.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/failure.h"

namespace tesser::transport {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }

 private:
  int value_ = -1;
};

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
// "host:port", "[::1]:port".
Outcome<HostPort> parse_host_port(std::string_view text);

struct Listener {
  Descriptor socket;
  HostPort address;  // as bound: numeric host, the port the system chose
};

// All sockets are non-blocking and close-on-exec.
Outcome<Listener> listen_tcp(const HostPort& address);
Outcome<Descriptor> listen_unix(const std::string& name);  // abstract name
// Tries again while the connection is refused, until the deadline.
Outcome<Descriptor> connect_tcp(const HostPort& address, Deadline deadline);
Outcome<Descriptor> connect_unix(const std::string& name, Deadline deadline);
bool same_user(int unix_socket);
void send_at_once(int tcp_socket);  // and not wait for more to send
// For the connection that tensors take: large buffers, where the system lets them be larger than by itself.
void enlarge_buffers(int tcp_socket);

enum class FrameType : std::uint32_t {
  kHello = 1,
  kRefusal = 2,
  kDecision = 3,
  kAttach = 4,
  kWorkerAddress = 5,
  kRegion = 6,
  kAnnouncement = 7,
  kWithdrawal = 8,
  kBeat = 9,
  kFarewell = 10,
};
constexpr std::uint32_t kLongestFrame = 64 << 10;

struct Frame {
  FrameType type = FrameType::kBeat;
  std::string body;
  Descriptor descriptor;  // that came with it
};

// Blocking, for the handshake. `peer` is for messages.
Outcome<void> send_frame(int socket, FrameType type, std::string_view body, int descriptor, const std::string& peer,
                         Deadline deadline);
Outcome<Frame> receive_frame(int socket, const std::string& peer, Deadline deadline);

// The control connection after the handshake. send() from any thread, receive() and flush() from the service thread.
class FrameStream {
 public:
  explicit FrameStream(Descriptor socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.get(); }
  // Never blocks: what the socket does not take is kept until flush(). `descriptor` is kept open by the caller.
  void send(FrameType type, std::string_view body, int descriptor = -1);
  void flush();

  enum class State : std::uint8_t { kOpen, kClosed, kMalformed };
  // Appends all frames that have arrived.
  State receive(std::vector<Frame>& frames);
  // Whether the peer's side ends in this time. Blocks.
  bool closes_within(std::chrono::milliseconds time) const;
  // Ends the connection for both sides.
  void shut_down();

 private:
  struct Outgoing {
    std::string bytes;
    std::size_t sent = 0;
    int descriptor = -1;
  };
  void flush_locked();

  Descriptor socket_;
  std::mutex mutex_;
  std::deque<Outgoing> outgoing_;
  std::string incoming_;
  std::deque<Descriptor> descriptors_;
};

}  // namespace tesser::transport
