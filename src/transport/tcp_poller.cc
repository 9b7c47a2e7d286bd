#include "transport/tcp_poller.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/epoll.h>

#include <fmt/format.h>

namespace tesser::transport {

Outcome<void> TcpPoller::open() {
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) {
    return failure(FailureKind::kUnavailable, "",
                   fmt::format("no event descriptor: {}; raise ulimit -n", std::strerror(errno)));
  }
  return {};
}

void TcpPoller::add(const std::shared_ptr<TcpLink>& link) {
  const std::lock_guard lock(mutex_);
  links_.emplace(link->token(), link);
  count_.store(links_.size());
}

void TcpPoller::remove(std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  links_.erase(token);
  count_.store(links_.size());
}

std::shared_ptr<TcpLink> TcpPoller::find(std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(token);
  return found == links_.end() ? nullptr : found->second;
}

unsigned TcpPoller::progress() {
  if (empty()) {
    return 0;
  }
  epoll_event events[32];
  const int count = ::epoll_wait(epoll_.get(), events, 32, 0);
  unsigned done = 0;
  for (int i = 0; i < count; ++i) {
    if (const auto link = find(events[i].data.u64)) {
      done += link->progress(events[i].events);
    }
  }
  return done;
}

void TcpPoller::finish_sending() {
  const std::lock_guard lock(mutex_);
  for (const auto& [token, link] : links_) {
    link->finish_sending();
  }
}

bool TcpPoller::idle() {
  const std::lock_guard lock(mutex_);
  return std::all_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second->idle(); });
}

}  // namespace tesser::transport
