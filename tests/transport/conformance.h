// One suite for every back end: what each promises. The tests stand by idea in one_sided_test.cc,
// static_transfer_test.cc, dynamic_transfer_test.cc and concurrency_test.cc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "peer_group.h"
#include "transport/static_transfer.h"

namespace tesser::transport::testing {

inline const std::chrono::seconds kLong{small_tests() ? 60 : 10};
constexpr std::uint64_t kMiB = 1 << 20;

class Conformance : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override;  // skips where the back end cannot run
};

// Bytes that differ by seed and place.
void fill(std::byte* data, std::size_t bytes, std::uint64_t seed);
bool holds(const std::byte* data, std::size_t bytes, std::uint64_t seed);

// A failure ends the peer's process, with its message.
template <typename T>
T must(Outcome<T> outcome) {
  if (!outcome) {
    ADD_FAILURE() << outcome.error().message;
    std::abort();
  }
  return std::move(*outcome);
}
void must(Outcome<void> outcome);

void wait_until(Peer& peer, const std::function<bool()>& ready);
void finish(Peer& peer, Completion& completion);
void send(Peer& peer, StaticSender& sender, const MemoryRegion& from, const Strided& source);
void receive(Peer& peer, StaticReceiver& receiver);

TensorType bytes_type(std::uint64_t bytes);
// The peer's region that was allocated as this one was here.
std::shared_ptr<const RemoteRegion> counterpart(Peer& peer, const MemoryRegion& region);

}  // namespace tesser::transport::testing
