// A notification queue each way between two ends that name them alike. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "transport/device.h"
#include "transport/notification_queue.h"

namespace tesser::hub {

// Transport's outcomes, for callers that report through base's Error.
template <typename T>
Result<T> as_result(transport::Outcome<T> outcome) {
  if (!outcome) {
    return tl::unexpected<Error>(transport::to_error(outcome.error()));
  }
  return std::move(*outcome);
}
inline Result<void> as_result(const transport::Outcome<void>& outcome) {
  return outcome ? Result<void>() : tl::unexpected<Error>(transport::to_error(outcome.error()));
}

struct QueuePair {
  transport::NotificationReader arrivals;
  transport::NotificationWriter sends;

  // Does not block. `capacity`: of what arrives.
  static Result<QueuePair> open(const std::shared_ptr<transport::Channel>& channel, const std::string& arrivals,
                                const std::string& sends, std::uint32_t capacity);
  // Until the other end has opened its queues as well: nothing can be sent before. `who` is the other end, in messages.
  Result<void> wait_until_open(transport::Device& device, transport::Deadline deadline, const std::string& who);
};

}  // namespace tesser::hub
