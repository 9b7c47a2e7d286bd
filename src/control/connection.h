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
#include <vector>

namespace tesser::control {

// One thread. Nothing here waits once `stop`, a descriptor, has become readable.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Trouble : std::uint8_t { kNone, kTooSlow, kTooMuch, kGone };

  // `open` counts those that live, beyond which it lives.
  Connection(int socket, int stop, std::atomic<int>& open) : socket_(socket), stop_(stop), open_(open) { ++open_; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();  // closes the socket

  // Whether something has come that was not read yet.
  bool has_input() const { return begin_ != end_ || is_ready(POLLIN, Clock::now()); }
  // Gives back memory that is not needed until has_input().
  void rest();
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

  bool is_ready(short events, Clock::time_point until) const;
  int socket() const { return socket_; }

 private:
  const int socket_;
  const int stop_;
  std::atomic<int>& open_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  Clock::time_point read_until() const;
  Clock::time_point write_until() const;
  std::chrono::nanoseconds time_of(std::size_t bytes) const;

  std::chrono::milliseconds time_{0};
  std::size_t slowest_ = 0;
  Clock::time_point began_;
  Clock::time_point answer_began_;
  std::size_t has_read_ = 0;
  std::size_t has_written_ = 0;
  bool answers_ = false;
  std::size_t left_ = 0;
  Trouble trouble_ = Trouble::kNone;
};

}  // namespace tesser::control
