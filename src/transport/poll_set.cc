#include "transport/poll_set.h"

#include <utility>

namespace tesser::transport {

void PollSet::add(std::function<bool()> ready, std::uint64_t token) { waiting_.push_back({std::move(ready), token}); }

std::size_t PollSet::collect(std::vector<std::uint64_t>& ready) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < waiting_.size();) {
    if (!waiting_[i].ready()) {
      ++i;
      continue;
    }
    ready.push_back(waiting_[i].token);
    ++found;
    waiting_[i] = std::move(waiting_.back());
    waiting_.pop_back();
  }
  return found;
}

std::size_t PollSet::poll(std::vector<std::uint64_t>& ready) {
  device_.progress();
  return collect(ready);
}

std::size_t PollSet::wait(std::vector<std::uint64_t>& ready, Deadline deadline) {
  std::size_t found = 0;
  device_.wait([&] { return (found = collect(ready)) != 0; }, deadline);
  return found;
}

}  // namespace tesser::transport
