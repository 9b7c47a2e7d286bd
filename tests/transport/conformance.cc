#include "conformance.h"

#include <cstring>
#include <vector>

namespace tesser::transport::testing {

void Conformance::SetUp() {
  if (const std::string reason = why_not(GetParam()); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
}

void fill(std::byte* data, std::size_t bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(data + i, &state, 8);
  }
  for (; i < bytes; ++i) {
    data[i] = static_cast<std::byte>(seed + i);
  }
}

bool holds(const std::byte* data, std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> expected(bytes);
  fill(expected.data(), bytes, seed);
  return bytes == 0 || std::memcmp(data, expected.data(), bytes) == 0;
}

void must(Outcome<void> outcome) {
  if (!outcome) {
    ADD_FAILURE() << outcome.error().message;
    std::abort();
  }
}

void wait_until(Peer& peer, const std::function<bool()>& ready) {
  if (!peer.device->wait(ready, in(kLong))) {
    ADD_FAILURE() << "worker " << peer.index << " waits in vain";
    std::abort();
  }
}

void finish(Peer& peer, Completion& completion) {
  wait_until(peer, [&] { return completion.done(); });
  must(completion.outcome());
}

void send(Peer& peer, StaticSender& sender, const MemoryRegion& from, const Strided& source) {
  Completion completion;
  wait_until(peer, [&] { return must(sender.try_send(from, source, completion)); });
  finish(peer, completion);
}

void receive(Peer& peer, StaticReceiver& receiver) {
  wait_until(peer, [&] { return must(receiver.poll()); });
}

TensorType bytes_type(std::uint64_t bytes) { return {DType::kUInt8, {static_cast<std::int64_t>(bytes)}}; }

std::shared_ptr<const RemoteRegion> counterpart(Peer& peer, const MemoryRegion& region) {
  return must(peer.channel().import_region(
      {peer.channel().peer_nonce(), region.handle().region, MemoryKind::kHost, region.bytes()}, in(kLong)));
}

INSTANTIATE_TEST_SUITE_P(, Conformance, ::testing::ValuesIn(all_backends()),
                         [](const auto& info) { return backend_name(info.param); });

}  // namespace tesser::transport::testing
