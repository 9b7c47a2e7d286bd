// One client's connection at a server, under limits of time and size: cpp-httplib's own connections bound the time of
// each system call only, so that a client that sends a byte now and then holds a thread for ever. Internal to this
// folder.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/tls.h"

namespace tesser::control {

// How many connections each address has. Any thread.
class AddressCounts {
 public:
  // False, and nothing is counted, when it has `most` already.
  bool add(const std::string& address, int most);
  void remove(const std::string& address);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, int> counts_;
};

// One thread. Nothing here waits once `stop`, a descriptor, has become readable.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Trouble : std::uint8_t { kNone, kTooSlow, kTooMuch, kGone };

  // What take_input() has found.
  enum class Input : std::uint8_t { kNothing, kPart, kWhole, kGone };

  // `open` counts those that live, beyond which it lives. `tls`: what is read and written is inside of it.
  Connection(int socket, int stop, std::atomic<int>& open, std::unique_ptr<TlsSession> tls = nullptr);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();  // closes the socket

  // Takes what has come, without waiting. kWhole: the head of a request is there, or more than it may have, which is
  // trouble(); kPart: the rest of it has yet to come.
  Input take_input(std::size_t most_bytes);
  // Gives back memory that is not needed until more has come.
  void rest();
  // When a connection that waits for a request has waited long enough: for the rest of it, or for its beginning.
  Clock::time_point rest_until(std::chrono::milliseconds request_time, std::chrono::milliseconds idle_time) const {
    return part_began_ ? *part_began_ + request_time : Clock::now() + idle_time;
  }
  bool has_part() const { return part_began_.has_value(); }
  // A request begins that may take `time` and `most_bytes`; its answer, too, may take `time` from when it begins. Both
  // may take longer by what they have moved at `slowest` bytes a second, unless that is 0.
  void begin_request(std::chrono::milliseconds time, std::size_t most_bytes, std::size_t slowest = 0);
  // The body comes next: so many bytes, and none after it.
  void begin_body(std::size_t bytes) { left_ = bytes; }
  std::size_t left() const { return left_; }
  Trouble trouble() const { return trouble_; }  // of the request, as is said by -1 of the next two

  ssize_t read(char* to, std::size_t most);  // 0: the client sends no more
  ssize_t write(const char* from, std::size_t bytes);
  // Sends what it can of the text, ends the connection and takes what is still coming for a moment, without which the
  // client might lose the answer.
  void hang_up(const char* text = "");
  // The same without taking the moment.
  void hang_up_at_once(const char* text);

  bool is_ready(short events, Clock::time_point until) const;
  int socket() const { return socket_; }
  // As one of its address's, of which there may be `most` (0: any number), as long as it lives.
  bool count_in(AddressCounts& counts, int most);
  const std::string& address() const { return address_; }  // the client's, without its port

 private:
  ssize_t receive(char* to, std::size_t most);
  ssize_t send(const char* from, std::size_t bytes);
  void say_last(const char* text);

  const int socket_;
  const int stop_;
  std::atomic<int>& open_;
  const std::unique_ptr<TlsSession> tls_;
  const std::string address_;
  AddressCounts* counts_ = nullptr;  // it is counted there
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  Clock::time_point read_until() const;
  Clock::time_point write_until() const;
  std::chrono::nanoseconds time_of(std::size_t bytes) const;

  std::optional<Clock::time_point> part_began_;  // a request, or the handshake, whose rest is to come
  std::chrono::milliseconds time_{0};
  std::size_t slowest_ = 0;
  Clock::time_point began_;
  Clock::time_point answer_began_;
  std::size_t has_read_ = 0;
  std::size_t has_written_ = 0;
  bool answers_ = false;
  short write_events_ = POLLOUT;  // before more can be written
  std::size_t left_ = 0;
  Trouble trouble_ = Trouble::kNone;
};

}  // namespace tesser::control
