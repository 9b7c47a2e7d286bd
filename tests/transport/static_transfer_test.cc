// Transfers whose type is known ahead.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "conformance.h"
#include "transport/dynamic_transfer.h"
#include "transport/poll_set.h"
#include "transport/registered_arena.h"

namespace tesser::transport::testing {

TEST_P(Conformance, StaticTransfersOfEverySize) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    std::vector<std::uint64_t> sizes{0, 1, 8, 64, 4096, 8192, 8193, 100'001, kMiB, 5 * kMiB + 3};
    if (!kUnderSanitizer && !small_tests()) {
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

}  // namespace tesser::transport::testing
