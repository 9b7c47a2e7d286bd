#include "control/connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace tesser::control {
namespace {

constexpr std::chrono::milliseconds kTimeToHangUp{500};
constexpr std::size_t kBufferBytes = 16384;

std::string address_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char text[NI_MAXHOST];
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "unknown";
  }
  return text;
}

}  // namespace

Connection::Connection(int socket, int stop, std::atomic<int>& open, std::unique_ptr<TlsSession> tls)
    : socket_(socket), stop_(stop), open_(open), tls_(std::move(tls)), address_(address_of(socket)) {
  ++open_;
  if (tls_ != nullptr) {
    part_began_ = Clock::now();
  }
}

bool AddressCounts::add(const std::string& address, int most) {
  const std::lock_guard lock(mutex_);
  int& count = counts_[address];
  if (count >= most) {
    return false;
  }
  ++count;
  return true;
}

void AddressCounts::remove(const std::string& address) {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(address);
  if (found != counts_.end() && --found->second == 0) {
    counts_.erase(found);
  }
}

bool Connection::count_in(AddressCounts& counts, int most) {
  if (most == 0 || !counts.add(address_, most)) {
    return most == 0;
  }
  counts_ = &counts;
  return true;
}

Connection::~Connection() {
  if (counts_ != nullptr) {
    counts_->remove(address_);
  }
  ::close(socket_);
  --open_;
}

ssize_t Connection::receive(char* to, std::size_t most) {
  return tls_ != nullptr ? tls_->read(to, most) : ::recv(socket_, to, most, MSG_DONTWAIT);
}

ssize_t Connection::send(const char* from, std::size_t bytes) {
  return tls_ != nullptr ? tls_->write(from, bytes) : ::send(socket_, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Connection::Input Connection::take_input(std::size_t most_bytes) {
  constexpr std::string_view kEndOfHead = "\r\n\r\n";
  const std::size_t known = end_ - begin_;
  std::size_t looked_at = known < kEndOfHead.size() ? 0 : known - kEndOfHead.size();
  if (std::string_view(buffer_.data() + begin_, known).find(kEndOfHead) != std::string_view::npos) {
    return Input::kWhole;  // one that came with the one before it
  }
  while (true) {
    char piece[kBufferBytes];
    const ssize_t got = receive(piece, sizeof(piece));
    if (got < 0 && errno == EAGAIN) {
      break;
    }
    if (got <= 0) {
      return Input::kGone;
    }
    if (begin_ == end_) {
      begin_ = end_ = 0;
    }
    buffer_.resize(end_);
    buffer_.insert(buffer_.end(), piece, piece + got);
    end_ = buffer_.size();
    const std::string_view all(buffer_.data() + begin_, end_ - begin_);
    const std::size_t found = all.find(kEndOfHead, looked_at);
    if (found == all.npos ? all.size() >= most_bytes : found + kEndOfHead.size() > most_bytes) {
      trouble_ = Trouble::kTooMuch;
      return Input::kWhole;
    }
    if (found != all.npos) {
      return Input::kWhole;
    }
    looked_at = all.size() < kEndOfHead.size() ? 0 : all.size() - kEndOfHead.size();
  }
  if (begin_ == end_ && (tls_ == nullptr || tls_->has_shaken_hands())) {
    part_began_.reset();
    return Input::kNothing;
  }
  if (!part_began_) {
    part_began_ = Clock::now();
  }
  return Input::kPart;
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
    begin_ = end_ = 0;
  } else {
    buffer_.shrink_to_fit();
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
  part_began_.reset();
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
    buffer_.resize(kBufferBytes);
    const ssize_t got = receive(buffer_.data(), buffer_.size());
    if (got < 0 && errno == EAGAIN) {
      if (!is_ready(tls_ != nullptr ? tls_->events() : POLLIN, read_until()) || Clock::now() > read_until()) {
        trouble_ = Trouble::kTooSlow;
        return -1;
      }
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
  if (!is_ready(tls_ != nullptr ? write_events_ : POLLOUT, write_until())) {
    trouble_ = Trouble::kGone;
    return -1;
  }
  const ssize_t sent = send(from, bytes);
  write_events_ = sent < 0 && tls_ != nullptr ? tls_->events() : POLLOUT;
  if (sent < 0 && errno == EAGAIN) {
    return 0;
  }
  if (sent <= 0) {
    trouble_ = Trouble::kGone;
  } else {
    has_written_ += static_cast<std::size_t>(sent);
  }
  return sent;
}

void Connection::say_last(const char* text) {
  if (*text != '\0') {
    send(text, std::strlen(text));
  }
  if (tls_ != nullptr) {
    tls_->say_goodbye();
  }
  ::shutdown(socket_, SHUT_WR);
  buffer_.resize(kBufferBytes);
}

void Connection::hang_up(const char* text) {
  say_last(text);
  const Clock::time_point until = Clock::now() + kTimeToHangUp;
  while (is_ready(POLLIN, until) && Clock::now() < until &&
         ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) > 0) {
  }
}

void Connection::hang_up_at_once(const char* text) {
  say_last(text);
  while (::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) > 0) {
  }
}

}  // namespace tesser::control
