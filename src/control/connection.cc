#include "control/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tesser::control {
namespace {

constexpr std::chrono::milliseconds kTimeToHangUp{500};
constexpr std::size_t kBufferBytes = 16384;

}  // namespace

Connection::~Connection() {
  ::close(socket_);
  --open_;
}

bool Connection::is_ready(short events, Clock::time_point until) const {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    std::array<pollfd, 2> entries{pollfd{socket_, events, 0}, pollfd{stop_, POLLIN, 0}};
    const int count = ::poll(entries.data(), entries.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    return count > 0 && entries[1].revents == 0;
  }
}

void Connection::rest() {
  if (begin_ == end_) {
    buffer_ = {};
  }
}

void Connection::begin_request(std::chrono::milliseconds time, std::size_t most_bytes, std::size_t slowest) {
  time_ = time;
  slowest_ = slowest;
  began_ = Clock::now();
  has_read_ = 0;
  has_written_ = 0;
  answers_ = false;
  left_ = most_bytes;
}

std::chrono::nanoseconds Connection::time_of(std::size_t bytes) const {
  return std::chrono::nanoseconds(
      slowest_ == 0 ? 0 : static_cast<std::int64_t>(static_cast<double>(bytes) / static_cast<double>(slowest_) * 1e9));
}

Connection::Clock::time_point Connection::read_until() const { return began_ + time_ + time_of(has_read_); }

Connection::Clock::time_point Connection::write_until() const { return answer_began_ + time_ + time_of(has_written_); }

ssize_t Connection::read(char* to, std::size_t most) {
  if (trouble_ != Trouble::kNone || most == 0) {
    return -1;
  }
  if (left_ == 0) {
    trouble_ = Trouble::kTooMuch;
    return -1;
  }
  while (begin_ == end_) {
    if (!is_ready(POLLIN, read_until())) {
      trouble_ = Trouble::kTooSlow;
      return -1;
    }
    buffer_.resize(kBufferBytes);
    const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) {
      continue;
    }
    if (got <= 0) {
      trouble_ = Trouble::kGone;
      return got;
    }
    begin_ = 0;
    end_ = static_cast<std::size_t>(got);
  }
  const std::size_t bytes = std::min({most, end_ - begin_, left_});
  std::memcpy(to, buffer_.data() + begin_, bytes);
  begin_ += bytes;
  left_ -= bytes;
  has_read_ += bytes;
  return static_cast<ssize_t>(bytes);
}

ssize_t Connection::write(const char* from, std::size_t bytes) {
  if (trouble_ != Trouble::kNone) {
    return -1;
  }
  if (!answers_) {
    answers_ = true;
    answer_began_ = Clock::now();
  }
  if (!is_ready(POLLOUT, write_until())) {
    trouble_ = Trouble::kGone;
    return -1;
  }
  const ssize_t sent = ::send(socket_, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno == EAGAIN) {
    return 0;
  }
  if (sent < 0) {
    trouble_ = Trouble::kGone;
  } else {
    has_written_ += static_cast<std::size_t>(sent);
  }
  return sent;
}

void Connection::hang_up(const char* text) {
  ::send(socket_, text, std::strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(socket_, SHUT_WR);
  buffer_.resize(kBufferBytes);
  const Clock::time_point until = Clock::now() + kTimeToHangUp;
  while (is_ready(POLLIN, until) && Clock::now() < until &&
         ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) > 0) {
  }
}

}  // namespace tesser::control
