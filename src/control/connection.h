// One client's connection at a server, under limits of time and size: cpp-httplib's own connections bound the time of
// each system call only, so that a client that sends a byte now and then holds a thread for ever. Internal to this
// folder.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tesser::control {

// One thread. Nothing here waits once `stop`, a descriptor, has become readable.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Trouble : std::uint8_t { kNone, kTooSlow, kTooMuch, kGone };

  Connection(int socket, int stop) : socket_(socket), stop_(stop) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();  // closes the socket

  // Whether something comes within this time.
  bool wait(std::chrono::milliseconds time);
  // A request begins that may take `time` and `most_bytes`; its answer, too, may take `time` from when it begins.
  void begin_request(std::chrono::milliseconds time, std::size_t most_bytes);
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
  std::array<char, 16384> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  std::chrono::milliseconds time_{0};
  Clock::time_point read_until_;
  Clock::time_point write_until_;
  bool answers_ = false;
  std::size_t left_ = 0;
  Trouble trouble_ = Trouble::kNone;
};

}  // namespace tesser::control
