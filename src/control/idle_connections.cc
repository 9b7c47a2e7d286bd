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

Result<std::unique_ptr<IdleConnections>> IdleConnections::open(int stop, Limits limits, Ready ready, Ready late) {
  const int events = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{EPOLLIN, {.fd = stop}};
  if (events < 0 || ::epoll_ctl(events, EPOLL_CTL_ADD, stop, &event) != 0) {
    if (events >= 0) {
      ::close(events);
    }
    return failed(fmt::format("no event descriptor: {}; raise ulimit -n", std::strerror(errno)));
  }
  std::unique_ptr<IdleConnections> made(new IdleConnections(events, limits, std::move(ready), std::move(late)));
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
  const auto until = connection->rest_until(limits_.request_time, limits_.idle_time);
  const std::lock_guard lock(mutex_);  // so that it is not found ready before it is here
  epoll_event event{EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, {.fd = socket}};
  if (::epoll_ctl(events_, EPOLL_CTL_ADD, socket, &event) == 0) {
    connections_[socket] = {std::move(connection), until};
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
  std::vector<std::unique_ptr<Connection>> old;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = connections_.begin(); each != connections_.end();) {
      if (each->second.until >= now) {
        ++each;
        continue;
      }
      ::epoll_ctl(events_, EPOLL_CTL_DEL, each->first, nullptr);
      old.push_back(std::move(each->second.connection));
      each = connections_.erase(each);
    }
  }
  for (auto& each : old) {
    if (each->has_part()) {
      late_(std::move(each));
    }
  }
}

}  // namespace tesser::control
