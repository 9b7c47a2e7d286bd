#include "hub/queue_pair.h"

#include <fmt/format.h>

namespace tesser::hub {

Result<QueuePair> QueuePair::open(const std::shared_ptr<transport::Channel>& channel, const std::string& arrivals,
                                  const std::string& sends, std::uint32_t capacity) {
  TESSER_ASSIGN_OR_RETURN(auto reader, as_result(transport::NotificationReader::open(channel, arrivals, capacity)));
  TESSER_ASSIGN_OR_RETURN(auto writer, as_result(transport::NotificationWriter::open(channel, sends)));
  return QueuePair{std::move(reader), std::move(writer)};
}

Result<void> QueuePair::wait_until_open(transport::Device& device, transport::Deadline deadline,
                                        const std::string& who) {
  Result<void> outcome;
  const auto open = [&] {
    const auto here = arrivals.connected();
    const auto there = sends.connected();
    if (!here || !there) {
      outcome = failed((here ? there : here).error().message);
      return true;
    }
    return *here && *there;
  };
  if (!device.wait(open, deadline)) {
    return failed(fmt::format("{} has not opened its queues", who));
  }
  return outcome;
}

}  // namespace tesser::hub
