// Sleepers, threads, both ways at once, many peers.

#include <thread>

#include "conformance.h"
#include "transport/poll_set.h"

namespace tesser::transport::testing {

TEST_P(Conformance, SleepersAreWoken) {
  run_peers(
      GetParam(), 2,
      [](Peer& peer) {
        const int rounds = kUnderSanitizer || small_tests() ? 200 : 2000;
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
  run_peers(GetParam(), many_peers(GetParam()), body, adjust);
}

// Receiving never waits for sending: neither side reads before both have more under way than any buffer takes.
TEST_P(Conformance, BothSidesSendLargeTensorsAtOnce) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    const std::uint64_t bytes = (kUnderSanitizer ? 12 : 48) * kMiB + 5;
    auto out = must(peer.device->allocate(bytes));
    auto back = must(peer.device->allocate(bytes));
    auto read = must(peer.device->allocate(bytes));
    const auto theirs = counterpart(peer, *out);
    const Strided place = Strided::contiguous(0, bytes);
    const auto name = [](int from) { return "from " + std::to_string(from); };
    auto sender = must(StaticSender::open(peer.shared_channel(), name(peer.index), bytes_type(bytes)));
    auto receiver =
        must(StaticReceiver::open(peer.shared_channel(), name(1 - peer.index), bytes_type(bytes), back, place));
    fill(out->data(), bytes, peer.index);
    wait_until(peer, [&] { return must(receiver.connected()); });
    receiver.grant();  // at once, as both ends know each other
    peer.arrive();
    Completion sending;
    Completion reading;
    must(peer.channel().read(*theirs, place, *read, place, reading));
    wait_until(peer, [&] { return must(sender.try_send(*out, place, sending)); });
    peer.arrive();  // without waiting on the device
    receive(peer, receiver);
    finish(peer, sending);
    finish(peer, reading);
    EXPECT_TRUE(holds(back->data(), bytes, 1 - peer.index));
    EXPECT_TRUE(holds(read->data(), bytes, 1 - peer.index));
    peer.arrive();
  });
}

// What a peer asks for is answered while this side's threads are busy with something else.
TEST_P(Conformance, ABusyPeerIsReadAndWrittenAllTheSame) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    constexpr std::uint64_t kBytes = 3 * kMiB;
    auto region = must(peer.device->allocate(kBytes));
    const auto other = counterpart(peer, *region);
    const Strided place = Strided::contiguous(0, kBytes);
    if (peer.index == 1) {
      fill(region->data(), kBytes, 4);
      peer.arrive();
      peer.arrive();  // asleep, and not in the device
      EXPECT_TRUE(holds(region->data(), kBytes, 5));
    } else {
      auto mine = must(peer.device->allocate(kBytes));
      peer.arrive();
      Completion completion;
      must(peer.channel().read(*other, place, *mine, place, completion));
      finish(peer, completion);
      EXPECT_TRUE(holds(mine->data(), kBytes, 4));
      fill(mine->data(), kBytes, 5);
      must(peer.channel().write(*mine, place, *other, place, completion));
      must(peer.channel().flush(completion));
      finish(peer, completion);
      peer.arrive();
    }
    peer.arrive();
  });
}

}  // namespace tesser::transport::testing
