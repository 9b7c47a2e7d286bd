#include "transport/socket.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

namespace tesser::transport {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

std::string host_port_text(const HostPort& address) {
  return address.host.find(':') == std::string::npos ? fmt::format("{}:{}", address.host, address.port)
                                                     : fmt::format("[{}]:{}", address.host, address.port);
}

Outcome<AddressList> resolve(const HostPort& address, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                                  std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) {
    return failure(FailureKind::kInvalidArgument, "",
                   fmt::format("'{}' is no address: {}", host_port_text(address), ::gai_strerror(error)));
  }
  return AddressList(list, &::freeaddrinfo);
}

HostPort bound_address(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size);
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
    return {text, ntohs(address.sin6_port)};
  }
  const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return {text, ntohs(address.sin_port)};
}

std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

// False when the deadline passes first.
bool wait_for(int socket, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      return false;
    }
    pollfd entry{socket, events, 0};
    const int found = ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left, 1000)));
    if (found > 0 || (found < 0 && errno != EINTR)) {
      return true;
    }
  }
}

// Sends bytes, the first of them with a descriptor; what sendmsg returns.
ssize_t send_some(int socket, const char* bytes, std::size_t size, int descriptor) {
  iovec vector{const_cast<char*>(bytes), size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_some(int socket, char* bytes, std::size_t size, std::deque<Descriptor>& descriptors) {
  iovec vector{bytes, size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  constexpr std::size_t kMostDescriptors = 8;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received >= 0) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
        continue;
      }
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        descriptors.emplace_back(descriptor);
      }
    }
  }
  return received;
}

std::string frame_bytes(FrameType type, std::string_view body) {
  const std::uint32_t header[2] = {static_cast<std::uint32_t>(type), static_cast<std::uint32_t>(body.size())};
  std::string bytes(reinterpret_cast<const char*>(header), sizeof(header));
  bytes.append(body);
  return bytes;
}

bool known(std::uint32_t type) {
  return type >= static_cast<std::uint32_t>(FrameType::kHello) &&
         type <= static_cast<std::uint32_t>(FrameType::kFarewell);
}

tl::unexpected<Failure> broken(const std::string& peer, int error) {
  return failure(FailureKind::kPeerDied, peer,
                 fmt::format("the connection to {} ended during the handshake{}", peer,
                             error == 0 ? std::string() : fmt::format(": {}", std::strerror(error))));
}

tl::unexpected<Failure> timed_out(const std::string& peer) {
  return failure(FailureKind::kTimeout, peer,
                 fmt::format("{} did not answer in time; check that it runs and is not stopped", peer));
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

Descriptor::~Descriptor() {
  if (value_ >= 0) {
    ::close(value_);
  }
}

Outcome<HostPort> parse_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::uint16_t port = 0;
  bool good = colon != std::string_view::npos;
  if (good) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    good = error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
  }
  if (!good) {
    return failure(FailureKind::kInvalidArgument, "", fmt::format("'{}' is no address; write HOST:PORT", text));
  }
  std::string_view host = text.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return HostPort{std::string(host), port};
}

Outcome<Listener> listen_tcp(const HostPort& address) {
  TESSER_TRANSPORT_ASSIGN(const AddressList list, resolve(address, true));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    Descriptor socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0 && ::listen(socket.get(), 128) == 0) {
      HostPort bound = bound_address(socket.get());
      return Listener{std::move(socket), std::move(bound)};
    }
    error = errno;
  }
  return failure(FailureKind::kInvalidArgument, "",
                 fmt::format("cannot listen at {}: {}", host_port_text(address), std::strerror(error)));
}

Outcome<Descriptor> listen_unix(const std::string& name) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto [address, size] = abstract_address(name);
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), 128) != 0) {
    return failure(FailureKind::kUnavailable, "",
                   fmt::format("cannot listen on a Unix socket: {}", std::strerror(errno)));
  }
  return socket;
}

Outcome<Descriptor> connect_tcp(const HostPort& address, Deadline deadline) {
  TESSER_TRANSPORT_ASSIGN(const AddressList list, resolve(address, false));
  int error = 0;
  while (true) {
    for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
      Descriptor socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!socket) {
        error = errno;
        continue;
      }
      error = ::connect(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS) {
        if (!wait_for(socket.get(), POLLOUT, deadline)) {
          return failure(
              FailureKind::kUnreachable, "",
              fmt::format("no answer from {} in time; check host, port and firewall", host_port_text(address)));
        }
        socklen_t size = sizeof(error);
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error == 0) {
        send_at_once(socket.get());
        return socket;
      }
    }
    const auto pause = std::chrono::milliseconds(20);
    if (error != ECONNREFUSED || Clock::now() + pause >= deadline) {
      return failure(FailureKind::kUnreachable, "",
                     fmt::format("cannot connect to {}: {}; check that a tesser device listens there",
                                 host_port_text(address), std::strerror(error)));
    }
    std::this_thread::sleep_for(pause);
  }
}

Outcome<Descriptor> connect_unix(const std::string& name, Deadline deadline) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto [address, size] = abstract_address(name);
  while (socket) {
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) {
      return socket;
    }
    if (errno != EAGAIN || Clock::now() >= deadline) {  // EAGAIN: the queue of the listener is full
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return failure(FailureKind::kUnreachable, "",
                 fmt::format("its Unix socket cannot be reached ({}), as from another network namespace or container",
                             std::strerror(errno)));
}

bool same_user(int unix_socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return ::getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && credentials.uid == ::geteuid();
}

void send_at_once(int tcp_socket) {
  const int on = 1;
  ::setsockopt(tcp_socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void enlarge_buffers(int tcp_socket) {
  // Setting a buffer ends the system's own tuning, so it must be worth it.
  constexpr int kBytes = 4 << 20;
  const auto allows = [](const char* limit) {
    long bytes = 0;
    std::ifstream(limit) >> bytes;
    return bytes >= kBytes;
  };
  if (allows("/proc/sys/net/core/wmem_max") && allows("/proc/sys/net/core/rmem_max")) {
    ::setsockopt(tcp_socket, SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof(kBytes));
    ::setsockopt(tcp_socket, SOL_SOCKET, SO_RCVBUF, &kBytes, sizeof(kBytes));
  }
}

Outcome<void> send_frame(int socket, FrameType type, std::string_view body, int descriptor, const std::string& peer,
                         Deadline deadline) {
  const std::string bytes = frame_bytes(type, body);
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now = send_some(socket, bytes.data() + sent, bytes.size() - sent, sent == 0 ? descriptor : -1);
    if (now > 0) {
      sent += static_cast<std::size_t>(now);
    } else if (errno != EAGAIN && errno != EINTR) {
      return broken(peer, errno);
    } else if (!wait_for(socket, POLLOUT, deadline)) {
      return timed_out(peer);
    }
  }
  return {};
}

Outcome<Frame> receive_frame(int socket, const std::string& peer, Deadline deadline) {
  std::uint32_t header[2] = {0, 0};
  std::deque<Descriptor> descriptors;
  const auto receive_exactly = [&](char* bytes, std::size_t size) -> Outcome<void> {
    std::size_t received = 0;
    while (received < size) {
      const ssize_t now = receive_some(socket, bytes + received, size - received, descriptors);
      if (now > 0) {
        received += static_cast<std::size_t>(now);
      } else if (now == 0 || (errno != EAGAIN && errno != EINTR)) {
        return broken(peer, now == 0 ? 0 : errno);
      } else if (!wait_for(socket, POLLIN, deadline)) {
        return timed_out(peer);
      }
    }
    return {};
  };
  TESSER_TRANSPORT_RETURN_IF_FAILED(receive_exactly(reinterpret_cast<char*>(header), sizeof(header)));
  if (!known(header[0]) || header[1] > kLongestFrame) {
    return failure(FailureKind::kProtocol, peer, fmt::format("what answers at {} is no tesser device", peer));
  }
  Frame frame;
  frame.type = static_cast<FrameType>(header[0]);
  frame.body.resize(header[1]);
  TESSER_TRANSPORT_RETURN_IF_FAILED(receive_exactly(frame.body.data(), frame.body.size()));
  if (!descriptors.empty()) {
    frame.descriptor = std::move(descriptors.front());
  }
  return frame;
}

void FrameStream::send(FrameType type, std::string_view body, int descriptor) {
  const std::lock_guard lock(mutex_);
  outgoing_.push_back({frame_bytes(type, body), 0, descriptor});
  flush_locked();
}

void FrameStream::flush() {
  const std::lock_guard lock(mutex_);
  flush_locked();
}

void FrameStream::flush_locked() {
  while (!outgoing_.empty()) {
    Outgoing& front = outgoing_.front();
    const ssize_t now = send_some(socket_.get(), front.bytes.data() + front.sent, front.bytes.size() - front.sent,
                                  front.sent == 0 ? front.descriptor : -1);
    if (now < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        outgoing_.clear();  // the reading side sees the end of the connection and says so
      }
      return;
    }
    front.sent += static_cast<std::size_t>(now);
    if (front.sent == front.bytes.size()) {
      outgoing_.pop_front();
    }
  }
}

FrameStream::State FrameStream::receive(std::vector<Frame>& frames) {
  State state = State::kOpen;
  char bytes[16 << 10];
  while (true) {
    const ssize_t now = receive_some(socket_.get(), bytes, sizeof(bytes), descriptors_);
    if (now > 0) {
      incoming_.append(bytes, static_cast<std::size_t>(now));
      continue;
    }
    if (now < 0 && errno == EINTR) {
      continue;
    }
    if (now == 0 || errno != EAGAIN) {
      state = State::kClosed;
    }
    break;
  }
  std::size_t used = 0;
  std::uint32_t header[2];
  while (incoming_.size() - used >= sizeof(header)) {
    std::memcpy(header, incoming_.data() + used, sizeof(header));
    if (!known(header[0]) || header[1] > kLongestFrame) {
      return State::kMalformed;
    }
    if (incoming_.size() - used < sizeof(header) + header[1]) {
      break;
    }
    Frame frame;
    frame.type = static_cast<FrameType>(header[0]);
    frame.body = incoming_.substr(used + sizeof(header), header[1]);
    if (frame.type == FrameType::kRegion && !descriptors_.empty()) {
      frame.descriptor = std::move(descriptors_.front());
      descriptors_.pop_front();
    }
    frames.push_back(std::move(frame));
    used += sizeof(header) + header[1];
  }
  incoming_.erase(0, used);
  return state;
}

bool FrameStream::closes_within(std::chrono::milliseconds time) const {
  pollfd entry{socket_.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, static_cast<int>(time.count())) > 0;
}

void FrameStream::shut_down() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace tesser::transport
