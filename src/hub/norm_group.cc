#include "hub/norm_group.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tesser::hub {

Result<void> NormGroup::join(std::size_t number, std::size_t jobs, std::function<void(double)> publish,
                             std::function<void(const std::string&)> broken) {
  const std::lock_guard lock(mutex_);
  if (jobs != members_.size() || number >= jobs || members_[number].publish) {
    return invalid_input(fmt::format("job {} of {} that clip by one norm; the group has {}{}", number, jobs,
                                     members_.size(), number < members_.size() ? ", and a job of this number" : ""));
  }
  members_[number] = {std::move(publish), std::move(broken), std::nullopt, false};
  return {};
}

void NormGroup::leave(std::size_t number) {
  const std::lock_guard lock(mutex_);
  members_[number] = {};
  members_[number].has_left = true;
  for (Member& each : members_) {
    if (each.squares) {
      each.broken(fmt::format("job {} of those that clip by one norm has ended", number));
    }
  }
}

void NormGroup::give(std::size_t number, double squares) {
  const std::lock_guard lock(mutex_);
  members_[number].squares = squares;
  const auto left = std::find_if(members_.begin(), members_.end(), [](const Member& each) { return each.has_left; });
  if (left != members_.end()) {
    members_[number].broken(fmt::format("job {} of those that clip by one norm has ended", left - members_.begin()));
    return;
  }
  double total = 0;
  for (const Member& each : members_) {  // in the order of the jobs, so that runs repeat to the bit
    if (!each.squares) {
      return;
    }
    total += *each.squares;
  }
  for (Member& each : members_) {
    each.squares.reset();
    each.publish(total);
  }
}

}  // namespace tesser::hub
