#include "control/idle_connections.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tesser::control {
namespace {

constexpr int kEventsAtOnce = 64;
constexpr int kLookMilliseconds = 250;  // for old ones

}  // namespace

Result<std::unique_ptr<IdleConnections>> IdleConnections::open(int stop, std::chrono::milliseconds time, Ready ready) {
  const int events = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{EPOLLIN, {.fd = stop}};
  if (events < 0 || ::epoll_ctl(events, EPOLL_CTL_ADD, stop, &event) != 0) {
    if (events >= 0) {
      ::close(events);
    }
    return failed(fmt::format("no event descriptor: {}; raise ulimit -n", std::strerror(errno)));
  }
  std::unique_ptr<IdleConnections> made(new IdleConnections(events, time, std::move(ready)));
  made->thread_ = std::thread([made = made.get(), stop] { made->watch(stop); });
  return made;
}

IdleConnections::~IdleConnections() {
  thread_.join();
  ::close(events_);
}

void IdleConnections::add(std::unique_ptr<Connection> connection) {
  const int socket = connection->socket();
  connection->rest();
  const std::lock_guard lock(mutex_);  // so that it is not found ready before it is here
  epoll_event event{EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, {.fd = socket}};
  if (::epoll_ctl(events_, EPOLL_CTL_ADD, socket, &event) == 0) {
    connections_[socket] = {std::move(connection), Connection::Clock::now() + time_};
  }
}

void IdleConnections::watch(int stop) {
  auto look = Connection::Clock::now();
  while (true) {
    std::array<epoll_event, kEventsAtOnce> events;
    const int count = ::epoll_wait(events_, events.data(), kEventsAtOnce, kLookMilliseconds);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == stop) {
        return;
      }
      std::unique_ptr<Connection> connection;
      {
        const std::lock_guard lock(mutex_);
        const auto found = connections_.find(events[i].data.fd);
        if (found == connections_.end()) {
          continue;
        }
        ::epoll_ctl(events_, EPOLL_CTL_DEL, found->first, nullptr);
        connection = std::move(found->second.connection);
        connections_.erase(found);
      }
      ready_(std::move(connection));
    }
    if (Connection::Clock::now() >= look) {
      close_old_ones();
      look = Connection::Clock::now() + std::chrono::milliseconds(kLookMilliseconds);
    }
  }
}

void IdleConnections::close_old_ones() {
  const auto now = Connection::Clock::now();
  const std::lock_guard lock(mutex_);
  std::erase_if(connections_, [&](const auto& entry) { return entry.second.until < now; });
}

}  // namespace tesser::control
