// What every back end promises, once for each of them.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "peer_group.h"
#include "transport/dynamic_transfer.h"
#include "transport/poll_set.h"
#include "transport/registered_arena.h"
#include "transport/static_transfer.h"

namespace tesser::transport::testing {
namespace {

constexpr std::chrono::seconds kLong{10};
constexpr std::uint64_t kMiB = 1 << 20;

// Bytes that differ by seed and place.
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

template <typename T>
T must(Outcome<T> outcome) {
  if (!outcome) {
    ADD_FAILURE() << outcome.error().message;
    std::abort();
  }
  return std::move(*outcome);
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

class Conformance : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not(GetParam()); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
  }
};

TEST_P(Conformance, OneSidedWritesAndReadsOfEverySize) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    const std::vector<std::uint64_t> sizes{0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 4095, 4097, 8192, 8193, 65537, kMiB + 1};
    const std::uint64_t step = 2 * kMiB;
    auto region = must(peer.device->allocate(step * sizes.size()));
    const auto other = must(peer.channel().import_region(
        {peer.channel().peer_nonce(), region->handle().region, MemoryKind::kHost, region->bytes()}, in(kLong)));
    Completion completion;
    if (peer.index == 0) {
      auto source = must(peer.device->allocate(2 * kMiB));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::uint64_t shift = i * 5 % 64;  // every alignment comes up, on both sides
        fill(source->data() + shift, sizes[i], i);
        must(peer.channel().write(*source, Strided::contiguous(shift, sizes[i]), *other,
                                  Strided::contiguous(step * i + i * 3 % 64, sizes[i]), completion));
        finish(peer, completion);
      }
      must(peer.channel().flush(completion));
      finish(peer, completion);
    }
    peer.arrive();
    if (peer.index == 1) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_TRUE(holds(region->data() + step * i + i * 3 % 64, sizes[i], i)) << sizes[i];
      }
    } else {
      // Reads them back, all in flight at once, under one completion.
      auto back = must(peer.device->allocate(step * sizes.size()));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        must(peer.channel().read(*other, Strided::contiguous(step * i + i * 3 % 64, sizes[i]), *back,
                                 Strided::contiguous(step * i + i % 64, sizes[i]), completion));
      }
      finish(peer, completion);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_TRUE(holds(back->data() + step * i + i % 64, sizes[i], i)) << sizes[i];
      }
    }
    peer.arrive();
  });
}

TEST_P(Conformance, RangesOutsideARegionAreRefused) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto region = must(peer.device->allocate(4096));
    const auto other = must(peer.channel().import_region(
        {peer.channel().peer_nonce(), region->handle().region, MemoryKind::kHost, 4096}, in(kLong)));
    Completion completion;
    for (const Strided& bad : {Strided::contiguous(4095, 2), Strided::contiguous(~0ULL, 2), Strided{0, 2, {{2, 4095}}},
                               Strided{0, 1, {{1ULL << 33, 1ULL << 33}}}}) {
      const Strided good = Strided::contiguous(0, 2);
      const auto outcome = peer.channel().write(*region, good, *other, bad, completion);
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, FailureKind::kInvalidArgument);
      EXPECT_FALSE(peer.channel().read(*other, bad, *region, good, completion));
      EXPECT_FALSE(peer.channel().write(*region, bad, *other, good, completion));
    }
    EXPECT_TRUE(completion.done());
    // Another device's handle, and one whose size is wrong.
    EXPECT_EQ(peer.channel().import_region(region->handle(), in(kLong)).error().kind, FailureKind::kWrongPeer);
    EXPECT_EQ(
        peer.channel()
            .import_region({peer.channel().peer_nonce(), region->handle().region, MemoryKind::kHost, 8192}, in(kLong))
            .error()
            .kind,
        FailureKind::kTypeMismatch);
    EXPECT_EQ(peer.channel()
                  .import_region({peer.channel().peer_nonce(), 999, MemoryKind::kHost, 4096},
                                 in(std::chrono::milliseconds(20)))
                  .error()
                  .kind,
              FailureKind::kTimeout);
  });
}

TEST_P(Conformance, StaticTransfersOfEverySize) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    std::vector<std::uint64_t> sizes{0, 1, 8, 64, 4096, 8192, 8193, 100'001, kMiB, 5 * kMiB + 3};
    if (!kUnderSanitizer && std::getenv("TESSER_SMALL_TESTS") == nullptr) {
      sizes.push_back(256 * kMiB);
    }
    for (const std::uint64_t bytes : sizes) {
      auto region = must(peer.device->allocate(bytes + 64));
      const std::string name = "tensor " + std::to_string(bytes);
      const Strided place = Strided::contiguous(bytes % 64, bytes);
      const int rounds = bytes > 16 * kMiB ? 1 : 3;
      if (peer.index == 0) {
        auto sender = must(StaticSender::open(peer.shared_channel(), name, bytes_type(bytes)));
        for (int round = 0; round < rounds; ++round) {
          fill(region->data() + place.offset, bytes, bytes + round);
          send(peer, sender, *region, place);
        }
        peer.arrive();
      } else {
        auto receiver = must(StaticReceiver::open(peer.shared_channel(), name, bytes_type(bytes), region, place));
        for (int round = 0; round < rounds; ++round) {
          receiver.grant();
          receive(peer, receiver);
          EXPECT_TRUE(holds(region->data() + place.offset, bytes, bytes + round)) << bytes;
        }
        peer.arrive();
      }
    }
  });
}

TEST_P(Conformance, TailFlagsArriveAfterTheirTensors) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    constexpr std::uint64_t kBytes = 200'000;
    auto region = must(peer.device->allocate(kBytes));
    const Strided place = Strided::contiguous(0, kBytes);
    if (peer.index == 0) {
      auto sender =
          must(StaticSender::open(peer.shared_channel(), "tail", bytes_type(kBytes), Notification::kTailFlag));
      for (int round = 0; round < 50; ++round) {
        fill(region->data(), kBytes, round);
        send(peer, sender, *region, place);
      }
    } else {
      auto receiver = must(StaticReceiver::open(peer.shared_channel(), "tail", bytes_type(kBytes), region, place));
      for (int round = 0; round < 50; ++round) {
        receiver.grant();
        receive(peer, receiver);
        EXPECT_TRUE(holds(region->data(), kBytes, round));
      }
    }
    peer.arrive();
  });
}

TEST_P(Conformance, ThousandsOfTransfersInRandomOrder) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    constexpr int kTensors = 24;
    const int rounds = kUnderSanitizer ? 20 : 100;  // of each tensor, both ways: 4800 transfers
    std::mt19937 random(17);
    std::vector<std::uint64_t> sizes(kTensors);
    for (auto& bytes : sizes) {
      bytes = random() % 4 == 0 ? random() % 70'000 : random() % 500;
    }
    auto arena = RegisteredArena(must(peer.device->allocate(8 * kMiB)));
    struct Tensor {
      std::uint64_t from = 0;
      std::uint64_t to = 0;
      int sent = 0;
      int received = 0;
      std::unique_ptr<Completion> sending = std::make_unique<Completion>();
    };
    std::vector<Tensor> tensors(kTensors);
    std::vector<StaticSender> senders;
    std::vector<StaticReceiver> receivers;
    for (int i = 0; i < kTensors; ++i) {
      tensors[i].from = must(arena.allocate(sizes[i]));
      tensors[i].to = must(arena.allocate(sizes[i]));
      const std::string way = std::to_string(i) + " from ";
      senders.push_back(
          must(StaticSender::open(peer.shared_channel(), way + std::to_string(peer.index), bytes_type(sizes[i]))));
      receivers.push_back(
          must(StaticReceiver::open(peer.shared_channel(), way + std::to_string(1 - peer.index), bytes_type(sizes[i]),
                                    arena.region(), Strided::contiguous(tensors[i].to, sizes[i]))));
      receivers.back().grant();
    }
    random.seed(peer.index);  // each side has its own order
    PollSet waiting(*peer.device);
    const auto seed = [&](int sender, int tensor, int round) { return (sender * 1000 + tensor) * 1000 + round; };
    const auto wait_to_send = [&](int i) {
      fill(arena.at(tensors[i].from), sizes[i], seed(peer.index, i, tensors[i].sent));
      waiting.add([&, i] { return tensors[i].sending->done() && must(senders[i].can_send()); }, i);
    };
    const auto wait_to_receive = [&](int i) {
      waiting.add([&, i] { return must(receivers[i].poll()); }, kTensors + i);
    };
    for (int i = 0; i < kTensors; ++i) {
      wait_to_send(i);
      wait_to_receive(i);
    }
    std::vector<std::uint64_t> ready;
    int bad = 0;
    while (waiting.size() != 0) {
      ready.clear();
      ASSERT_NE(waiting.wait(ready, in(kLong)), 0U);
      std::shuffle(ready.begin(), ready.end(), random);
      for (const std::uint64_t token : ready) {
        const int i = static_cast<int>(token % kTensors);
        Tensor& tensor = tensors[i];
        if (token < kTensors) {
          EXPECT_TRUE(
              must(senders[i].try_send(*arena.region(), Strided::contiguous(tensor.from, sizes[i]), *tensor.sending)));
          if (++tensor.sent < rounds) {
            // The source is in use until the completion is done, so it is filled only then.
            wait_until(peer, [&] { return tensor.sending->done(); });
            wait_to_send(i);
          }
        } else {
          bad += holds(arena.at(tensor.to), sizes[i], seed(1 - peer.index, i, tensor.received)) ? 0 : 1;
          if (++tensor.received < rounds) {
            receivers[i].grant();
            wait_to_receive(i);
          }
        }
      }
    }
    EXPECT_EQ(bad, 0);
    for (Tensor& tensor : tensors) {
      finish(peer, *tensor.sending);
    }
    peer.arrive();
  });
}

TEST_P(Conformance, NothingIsSentWithoutCredit) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto region = must(peer.device->allocate(4096));
    const Strided place = Strided::contiguous(0, 4096);
    if (peer.index == 0) {
      auto sender = must(StaticSender::open(peer.shared_channel(), "t", bytes_type(4096)));
      Completion completion;
      wait_until(peer, [&] { return must(sender.connected()); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_FALSE(must(sender.try_send(*region, place, completion)));  // no grant yet
      peer.arrive();
      fill(region->data(), 4096, 1);
      send(peer, sender, *region, place);
      fill(region->data(), 4096, 2);
      for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(must(sender.try_send(*region, place, completion)));  // one grant, one transfer
      }
      peer.arrive();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_FALSE(must(sender.can_send()));
      peer.arrive();
      send(peer, sender, *region, place);
      peer.arrive();
    } else {
      auto receiver = must(StaticReceiver::open(peer.shared_channel(), "t", bytes_type(4096), region, place));
      wait_until(peer, [&] { return must(receiver.connected()); });
      EXPECT_FALSE(must(receiver.poll()));
      peer.arrive();
      receiver.grant();
      receive(peer, receiver);
      peer.arrive();
      EXPECT_TRUE(holds(region->data(), 4096, 1));
      EXPECT_FALSE(must(receiver.poll()));  // the old notification is not taken for a new one
      peer.arrive();
      receiver.grant();
      receive(peer, receiver);
      EXPECT_TRUE(holds(region->data(), 4096, 2));
      peer.arrive();
    }
  });
}

TEST_P(Conformance, SequenceNumbersWrapAround) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    constexpr std::uint32_t kFirst = 0xFFFFFFFD;
    auto region = must(peer.device->allocate(64));
    const Strided place = Strided::contiguous(0, 64);
    if (peer.index == 0) {
      auto sender = must(StaticSender::open(peer.shared_channel(), "s", bytes_type(64)));
      auto dynamic = must(DynamicSender::open(peer.shared_channel(), "d", region));
      for (int round = 0; round < 8; ++round) {
        fill(region->data(), 64, round);
        send(peer, sender, *region, place);
        wait_until(peer, [&] { return must(dynamic.try_send(DType::kUInt8, {64}, 0)); });
        wait_until(peer, [&] { return must(dynamic.released()); });
      }
    } else {
      auto receiver = must(StaticReceiver::open(peer.shared_channel(), "s", bytes_type(64), region, place, kFirst));
      auto dynamic = must(DynamicReceiver::open(peer.shared_channel(), "d", kFirst));
      for (int round = 0; round < 8; ++round) {
        receiver.grant();
        receive(peer, receiver);
        EXPECT_TRUE(holds(region->data(), 64, round));
        std::memset(region->data(), 0, 64);
        wait_until(peer, [&] { return must(dynamic.poll()) != nullptr; });
        Completion completion;
        must(dynamic.receive(*region, place, completion));
        finish(peer, completion);
        EXPECT_TRUE(holds(region->data(), 64, round));
        dynamic.release();
      }
    }
    peer.arrive();
  });
}

TEST_P(Conformance, RectanglesGoStraightBetweenTwoLayouts) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    // Rows 1-2, columns 3-6 of all of [2, 5, 9] floats to the corner of [2, 4, 7]; both contiguous row-major tensors.
    const Shape here{2, 5, 9};
    const Shape there{2, 4, 7};
    const Shape extent{2, 2, 4};
    const Strided source = rectangle(64, DType::kFloat32, here, {0, 1, 3}, extent);
    const Strided target = rectangle(128, DType::kFloat32, there, {0, 2, 3}, extent);
    EXPECT_EQ(source.runs(), 4U);
    auto region = must(peer.device->allocate(4096));
    auto* floats = reinterpret_cast<float*>(region->data());
    if (peer.index == 0) {
      std::iota(floats, floats + 1024, 0.0F);
      auto sender = must(StaticSender::open(peer.shared_channel(), "r", {DType::kFloat32, extent}));
      send(peer, sender, *region, source);
    } else {
      std::fill(floats, floats + 1024, -1.0F);
      auto receiver = must(StaticReceiver::open(peer.shared_channel(), "r", {DType::kFloat32, extent}, region, target));
      receiver.grant();
      receive(peer, receiver);
      int written = 0;
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 4; ++j) {
          for (int k = 0; k < 7; ++k) {
            const bool inside = j >= 2 && k >= 3;
            const float expected = inside ? 16.0F + static_cast<float>((i * 5 + j - 2 + 1) * 9 + k - 3 + 3) : -1.0F;
            EXPECT_EQ(floats[32 + (i * 4 + j) * 7 + k], expected) << i << " " << j << " " << k;
            written += inside ? 1 : 0;
          }
        }
      }
      EXPECT_EQ(written, 16);
    }
    peer.arrive();
  });
}

TEST_P(Conformance, DynamicTransfersOfManyShapes) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    std::vector<Shape> shapes{{},         {0}, {1}, {3, 0, 5}, {17}, {4, 5}, {2, 3, 4, 5}, {1, 1, 1, 1, 1, 1, 1, 2},
                              {1000, 257}};
    for (int i = 0; i < 100; ++i) {
      shapes.push_back({i, i * 7 % 40});
    }
    auto arena = RegisteredArena(must(peer.device->allocate(4 * kMiB)));
    if (peer.index == 0) {
      auto sender = must(DynamicSender::open(peer.shared_channel(), "d", arena.region()));
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const std::uint64_t bytes = element_count(shapes[i]) * 4;
        const std::uint64_t offset = must(arena.allocate(bytes));
        fill(arena.at(offset), bytes, i);
        wait_until(peer, [&] { return must(sender.try_send(DType::kFloat32, shapes[i], offset)); });
        wait_until(peer, [&] { return must(sender.released()); });
        arena.free(offset);
      }
      EXPECT_FALSE(sender.try_send(DType::kFloat32, Shape(9, 1), 0));
      EXPECT_FALSE(sender.try_send(DType::kFloat32, {1 << 20, 2}, 0));
    } else {
      auto receiver = must(DynamicReceiver::open(peer.shared_channel(), "d"));
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const IncomingTensor* tensor = nullptr;
        wait_until(peer, [&] { return (tensor = must(receiver.poll())) != nullptr; });
        EXPECT_EQ(tensor->shape, shapes[i]);
        EXPECT_EQ(tensor->dtype, DType::kFloat32);
        EXPECT_EQ(tensor->in_place != nullptr, peer.channel().path().path < Path::kUcx);
        if (tensor->in_place != nullptr) {
          EXPECT_TRUE(holds(tensor->in_place, tensor->bytes, i));
        }
        Completion completion;
        const std::uint64_t offset = must(receiver.receive(arena, completion));
        finish(peer, completion);
        EXPECT_TRUE(holds(arena.at(offset), tensor->bytes, i)) << shape_text(shapes[i]);
        receiver.release();
        arena.free(offset);
      }
      EXPECT_EQ(arena.figures().used, 0U);
    }
    peer.arrive();
  });
}

TEST_P(Conformance, OneDynamicTensorIsOutUntilItIsReleased) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto region = must(peer.device->allocate(4096));
    if (peer.index == 0) {
      auto sender = must(DynamicSender::open(peer.shared_channel(), "d", region));
      wait_until(peer, [&] { return must(sender.try_send(DType::kUInt8, {10}, 0)); });
      peer.arrive();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_FALSE(must(sender.released()));
      EXPECT_FALSE(must(sender.try_send(DType::kUInt8, {20}, 0)));
      peer.arrive();
      wait_until(peer, [&] { return must(sender.try_send(DType::kUInt8, {20}, 0)); });
      peer.arrive();
    } else {
      auto receiver = must(DynamicReceiver::open(peer.shared_channel(), "d"));
      const IncomingTensor* tensor = nullptr;
      wait_until(peer, [&] { return (tensor = must(receiver.poll())) != nullptr; });
      EXPECT_EQ(tensor->shape, Shape{10});
      peer.arrive();
      peer.arrive();
      EXPECT_EQ(must(receiver.poll()), tensor);
      receiver.release();
      wait_until(peer, [&] { return (tensor = must(receiver.poll())) != nullptr; });
      EXPECT_EQ(tensor->shape, Shape{20});
      receiver.release();
      peer.arrive();
    }
  });
}

TEST_P(Conformance, SleepersAreWoken) {
  run_peers(
      GetParam(), 2,
      [](Peer& peer) {
        const int rounds = kUnderSanitizer ? 200 : 2000;
        auto region = must(peer.device->allocate(64));
        const Strided place = Strided::contiguous(0, 64);
        auto sender =
            must(StaticSender::open(peer.shared_channel(), "from " + std::to_string(peer.index), bytes_type(64)));
        auto receiver = must(StaticReceiver::open(peer.shared_channel(), "from " + std::to_string(1 - peer.index),
                                                  bytes_type(64), must(peer.device->allocate(64)), place));
        for (int round = 0; round < rounds; ++round) {
          receiver.grant();
          if (peer.index == 0) {
            send(peer, sender, *region, place);
            receive(peer, receiver);
          } else {
            receive(peer, receiver);
            send(peer, sender, *region, place);
          }
        }
        peer.arrive();
      },
      [](DeviceOptions& options) { options.spin = std::chrono::microseconds(0); });
}

TEST_P(Conformance, DifferentTypesAreAFailureOnBothSides) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto region = must(peer.device->allocate(4096));
    std::optional<Failure> failure;
    const auto note = [&](Outcome<bool> outcome) {
      if (!outcome) {
        failure = outcome.error();
      }
      return failure.has_value();
    };
    if (peer.index == 0) {
      auto sender = must(StaticSender::open(peer.shared_channel(), "w", {DType::kFloat32, {4, 8}}));
      wait_until(peer, [&] { return note(sender.can_send()); });
    } else {
      auto receiver = must(StaticReceiver::open(peer.shared_channel(), "w", {DType::kFloat32, {8, 4}}, region,
                                                Strided::contiguous(0, 128)));
      receiver.grant();
      wait_until(peer, [&] { return note(receiver.poll()); });
    }
    EXPECT_EQ(failure->kind, FailureKind::kTypeMismatch);
    EXPECT_EQ(failure->peer, "worker " + std::to_string(1 - peer.index));
    EXPECT_NE(failure->message.find("float32[8, 4]"), std::string::npos) << failure->message;
    EXPECT_NE(failure->message.find("'w'"), std::string::npos) << failure->message;
    EXPECT_FALSE(peer.channel().failed());
    peer.arrive();
  });
}

TEST_P(Conformance, AnEndThatIsOverIsAFailureForTheOther) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto region = must(peer.device->allocate(64));
    for (int round = 0; round < 20; ++round) {  // words are given free and used again
      if (peer.index == 0) {
        auto sender = must(StaticSender::open(peer.shared_channel(), "t", bytes_type(64)));
        fill(region->data(), 64, round);
        send(peer, sender, *region, Strided::contiguous(0, 64));
      } else {
        auto receiver =
            must(StaticReceiver::open(peer.shared_channel(), "t", bytes_type(64), region, Strided::contiguous(0, 64)));
        receiver.grant();
        receive(peer, receiver);
        EXPECT_TRUE(holds(region->data(), 64, round));
        receiver.grant();
        Outcome<bool> outcome = false;
        wait_until(peer, [&] { return !(outcome = receiver.poll()) || *outcome; });
        ASSERT_FALSE(outcome);
        EXPECT_EQ(outcome.error().kind, FailureKind::kPeerClosed);
      }
      peer.arrive();
    }
    EXPECT_FALSE(peer.channel().failed());
  });
}

TEST_P(Conformance, ManyThreadsUseOneChannel) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    constexpr int kThreads = 4;
    const int rounds = kUnderSanitizer ? 50 : 200;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        auto region = must(peer.device->allocate(30'000));
        const std::uint64_t bytes = 100 + t * 9000;
        const std::string name = "thread " + std::to_string(t);
        const Strided place = Strided::contiguous(0, bytes);
        if (peer.index == 0) {
          auto sender = must(StaticSender::open(peer.shared_channel(), name, bytes_type(bytes)));
          for (int round = 0; round < rounds; ++round) {
            fill(region->data(), bytes, t * 1000 + round);
            send(peer, sender, *region, place);
          }
        } else {
          auto receiver = must(StaticReceiver::open(peer.shared_channel(), name, bytes_type(bytes), region, place));
          for (int round = 0; round < rounds; ++round) {
            receiver.grant();
            receive(peer, receiver);
            EXPECT_TRUE(holds(region->data(), bytes, t * 1000 + round));
          }
        }
        // Ends only with the other side's, so that no last word is lost.
        peer.meeting->number(peer.index).fetch_add(1);
        while (peer.meeting->number(1 - peer.index).load() < kThreads) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
}

TEST_P(Conformance, SixteenPeers) {
  const auto adjust = [](DeviceOptions& options) {
    if (GetParam() == Backend::kNamespaces) {
      options.paths = Paths::kTcpOnly;  // also between those who share one of the two namespaces
    }
  };
  const auto body = [](Peer& peer) {
    constexpr std::uint64_t kBytes = 10'000;
    auto region = must(peer.device->allocate(kBytes * 32));
    std::vector<StaticSender> senders;
    std::vector<StaticReceiver> receivers;
    std::vector<std::unique_ptr<Completion>> completions;
    std::vector<int> others;
    for (int other = 0; other < peer.count; ++other) {
      if (other == peer.index) {
        continue;
      }
      others.push_back(other);
      const auto name = [](int from, int to) { return std::to_string(from) + " to " + std::to_string(to); };
      senders.push_back(must(StaticSender::open(peer.channels[other], name(peer.index, other), bytes_type(kBytes))));
      receivers.push_back(must(StaticReceiver::open(peer.channels[other], name(other, peer.index), bytes_type(kBytes),
                                                    region, Strided::contiguous(kBytes * other, kBytes))));
      completions.push_back(std::make_unique<Completion>());
      fill(region->data() + kBytes * (16 + other), kBytes, peer.index * 100 + other);
    }
    for (int round = 0; round < 3; ++round) {
      PollSet waiting(*peer.device);
      for (std::size_t i = 0; i < others.size(); ++i) {
        receivers[i].grant();
        waiting.add([&, i] { return must(senders[i].can_send()); }, i);
        waiting.add([&, i] { return must(receivers[i].poll()); }, 100);
      }
      while (waiting.size() != 0) {
        std::vector<std::uint64_t> ready;
        ASSERT_NE(waiting.wait(ready, in(kLong)), 0U);
        for (const std::uint64_t i : ready) {
          if (i != 100) {
            must(senders[i].try_send(*region, Strided::contiguous(kBytes * (16 + others[i]), kBytes), *completions[i]));
          }
        }
      }
      for (std::size_t i = 0; i < others.size(); ++i) {
        finish(peer, *completions[i]);
        EXPECT_TRUE(holds(region->data() + kBytes * others[i], kBytes, others[i] * 100 + peer.index));
      }
    }
    peer.arrive();
  };
  run_peers(GetParam(), 16, body, adjust);
}

INSTANTIATE_TEST_SUITE_P(, Conformance, ::testing::ValuesIn(all_backends()),
                         [](const auto& info) { return backend_name(info.param); });

}  // namespace
}  // namespace tesser::transport::testing
