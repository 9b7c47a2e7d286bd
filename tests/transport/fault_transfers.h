// Transfers between two processes that go on until something happens; for the tests of faults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "peer_group.h"

namespace tesser::transport::testing {

constexpr std::chrono::seconds kFailureBound{5};  // within which a side must know that the other is gone

enum class Role : std::uint8_t { kSender, kReceiver };
enum class Kind : std::uint8_t { kStatic, kDynamic };

constexpr Role opposite(Role role) { return role == Role::kSender ? Role::kReceiver : Role::kSender; }

// What both sides and the test share, in the meeting's numbers.
class Progress {
 public:
  explicit Progress(Meeting& meeting) : meeting_(meeting) {}
  std::atomic<std::uint64_t>& transferred() { return meeting_.number(3); }  // tensors begun and received
  std::atomic<std::uint64_t>& finish() { return meeting_.number(4); }       // 1: the sender's next tensor is the last

 private:
  Meeting& meeting_;
};

// Sends or receives tensors of `bytes` (a multiple of 8) named "t", each different and each checked in every word,
// until a failure, or until the test asks for the end. Returns the failure, or nothing when all went to the end in
// order. A wrong tensor is a failed expectation.
std::optional<Failure> transfer_until_failure(Device& device, const std::shared_ptr<Channel>& channel,
                                              Progress progress, Role role, Kind kind, std::uint64_t bytes);

// Waits until the tests' transfers have got to `tensors`; false after half a minute.
bool wait_for_transfers(Progress progress, std::uint64_t tensors);

std::uint64_t clock_now();  // comparable between processes, in nanoseconds

}  // namespace tesser::transport::testing
