// Numbers in order, each behind its data, and nothing that was not sent.

#include <array>
#include <csignal>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "conformance.h"
#include "fault_transfers.h"
#include "transport/notification_queue.h"
#include "transport/signal_area.h"

namespace tesser::transport::testing {
namespace {

std::uint32_t number_of(std::uint64_t i) {
  return static_cast<std::uint32_t>(i * 0x9E3779B9ULL) % NotificationWriter::kMaxNumber;
}

NotificationWriter connected_writer(Peer& peer, const std::string& name) {
  auto writer = must(NotificationWriter::open(peer.shared_channel(), name));
  wait_until(peer, [&] { return must(writer.connected()); });
  return writer;
}

// Waits for the next one by way of ready() or of poll().
std::uint32_t next(Peer& peer, NotificationReader& reader, bool by_look = false) {
  std::optional<std::uint32_t> number;
  wait_until(peer, [&] {
    if (by_look && !reader.ready()) {
      return false;
    }
    number = must(reader.poll());
    return number.has_value();
  });
  return *number;
}

FailureKind last_failure(Peer& peer, NotificationReader& reader) {
  std::optional<Failure> failure;
  wait_until(peer, [&] {
    const auto polled = reader.poll();
    if (!polled) {
      failure = polled.error();
    } else {
      EXPECT_FALSE(polled->has_value());
    }
    return failure.has_value();
  });
  EXPECT_EQ(failure->peer, "worker " + std::to_string(1 - peer.index)) << failure->message;
  EXPECT_FALSE(reader.ready());
  return failure->kind;
}

}  // namespace

// A small ring, over more laps than its words tell apart, with two queues in use: the other one says what was read.
TEST_P(Conformance, NotificationsBehindTheirDataWrapAroundASmallRing) {
  constexpr std::uint64_t kCapacity = 4;
  constexpr std::uint64_t kSlot = 10'000;
  const bool all = GetParam() == Backend::kThreads && !kUnderSanitizer;
  const std::uint64_t count = small_tests() ? 200 : all ? 100'000 : 10'000;
  const auto bytes_of = [](std::uint64_t i) { return i % 64 == 63 ? kSlot : 8 + i % 100; };
  run_peers(GetParam(), 2, [&](Peer& peer) {
    auto region = must(peer.device->allocate(kCapacity * kSlot));
    if (peer.index == 0) {
      const auto target = counterpart(peer, *region);
      auto writer = must(NotificationWriter::open(peer.shared_channel(), "data"));
      auto acknowledged = must(NotificationReader::open(peer.shared_channel(), "read", kCapacity));
      wait_until(peer, [&] { return must(writer.connected()); });
      std::array<Completion, kCapacity> completions;
      for (std::uint64_t i = 0; i < count; ++i) {
        Completion& completion = completions[i % kCapacity];
        if (i >= kCapacity) {
          EXPECT_EQ(next(peer, acknowledged, true), number_of(i - kCapacity));
          finish(peer, completion);
        }
        const Strided place = Strided::contiguous(i % kCapacity * kSlot, bytes_of(i));
        fill(region->data() + place.offset, place.run_bytes, i);
        must(writer.write_and_notify(*region, place, *target, place, number_of(i), completion));
      }
      for (Completion& completion : completions) {
        finish(peer, completion);
      }
      peer.arrive();
    } else {
      auto reader = must(NotificationReader::open(peer.shared_channel(), "data", kCapacity));
      auto acknowledging = connected_writer(peer, "read");
      std::uint64_t bad = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        bad += next(peer, reader, i % 2 == 0) == number_of(i) ? 0 : 1;
        bad += holds(region->data() + i % kCapacity * kSlot, bytes_of(i), i) ? 0 : 1;
        must(acknowledging.notify(number_of(i), Notification::kAlone));
      }
      EXPECT_EQ(bad, 0U);
      EXPECT_FALSE(reader.ready());
      EXPECT_EQ(must(reader.poll()), std::nullopt);
      peer.arrive();
    }
  });
}

TEST_P(Conformance, NotificationsWaitUnreadInOrder) {
  constexpr std::uint64_t kCapacity = 1000;  // the ring has 1024
  run_peers(GetParam(), 2, [&](Peer& peer) {
    auto region = must(peer.device->allocate(kMiB));
    if (peer.index == 0) {
      const auto target = counterpart(peer, *region);
      auto writer = connected_writer(peer, "q");
      for (int round = 0; round < 3; ++round) {
        // A number alone comes after what was written before.
        Completion completion;
        fill(region->data(), kMiB, round);
        must(peer.channel().write(*region, Strided::contiguous(0, kMiB), *target, Strided::contiguous(0, kMiB),
                                  completion));
        must(writer.notify(0));
        must(writer.notify(NotificationWriter::kMaxNumber - 1, Notification::kAlone));
        for (std::uint64_t i = 2; i < kCapacity; ++i) {
          must(writer.notify(number_of(i), Notification::kAlone));
        }
        finish(peer, completion);
        peer.arrive();
        peer.arrive();
      }
    } else {
      auto reader = must(NotificationReader::open(peer.shared_channel(), "q", kCapacity));
      for (int round = 0; round < 3; ++round) {
        if (round == 1) {
          peer.arrive();  // all of them unread
        }
        EXPECT_EQ(next(peer, reader), 0U);
        EXPECT_TRUE(holds(region->data(), kMiB, round));
        EXPECT_EQ(next(peer, reader), NotificationWriter::kMaxNumber - 1);
        for (std::uint64_t i = 2; i < kCapacity; ++i) {
          ASSERT_EQ(next(peer, reader), number_of(i));
        }
        EXPECT_EQ(must(reader.poll()), std::nullopt);
        if (round != 1) {
          peer.arrive();
        }
        peer.arrive();
      }
    }
  });
}

TEST_P(Conformance, TheCountOfNotificationsWrapsAround) {
  constexpr std::uint64_t kCapacity = 2;
  run_peers(GetParam(), 2, [&](Peer& peer) {
    for (const std::uint32_t first : {0xFFFF'FFFDU, 0U}) {
      if (peer.index == 0) {
        auto writer = connected_writer(peer, "w");
        peer.arrive();
        for (std::uint32_t i = 0; i < 8; i += kCapacity) {
          must(writer.notify(i));
          must(writer.notify(i + 1));
          peer.arrive();
        }
      } else {
        auto reader = must(NotificationReader::open(peer.shared_channel(), "w", kCapacity, first));
        wait_until(peer, [&] { return must(reader.connected()); });
        EXPECT_EQ(must(reader.poll()), std::nullopt);
        peer.arrive();
        for (std::uint32_t i = 0; i < 8; i += kCapacity) {
          EXPECT_EQ(next(peer, reader), i);
          EXPECT_EQ(next(peer, reader), i + 1);
          peer.arrive();
        }
        EXPECT_EQ(last_failure(peer, reader), FailureKind::kPeerClosed);
      }
      peer.arrive();
    }
  });
}

TEST_P(Conformance, NotificationsThatCannotBeSentAreRefusedAndTakeNoPlace) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto region = must(peer.device->allocate(64));
    if (peer.index == 0) {
      const auto target = counterpart(peer, *region);
      auto writer = must(NotificationWriter::open(peer.shared_channel(), "q"));
      EXPECT_EQ(writer.notify(1).error().kind, FailureKind::kInvalidArgument);  // there is no reader
      peer.arrive();
      wait_until(peer, [&] { return must(writer.connected()); });
      EXPECT_EQ(writer.notify(NotificationWriter::kMaxNumber).error().kind, FailureKind::kInvalidArgument);
      EXPECT_EQ(writer.notify(~std::uint32_t{0}).error().kind, FailureKind::kInvalidArgument);
      Completion completion;
      const Strided good = Strided::contiguous(0, 8);
      const auto refused = [&](const Strided& source, const Strided& there, std::uint32_t number) {
        return writer.write_and_notify(*region, source, *target, there, number, completion).error().kind;
      };
      EXPECT_EQ(refused(good, good, NotificationWriter::kMaxNumber), FailureKind::kInvalidArgument);
      EXPECT_EQ(refused(good, Strided::contiguous(60, 8), 2), FailureKind::kInvalidArgument);
      EXPECT_EQ(refused(Strided::contiguous(~0ULL, 8), good, 2), FailureKind::kInvalidArgument);
      EXPECT_EQ(refused(good, Strided::contiguous(0, 9), 2), FailureKind::kInvalidArgument);
      must(writer.write_and_notify(*region, Strided::contiguous(0, 0), *target, Strided::contiguous(0, 0), 3,
                                   completion));  // no bytes
      must(writer.notify(4));
      finish(peer, completion);
      peer.arrive();
    } else {
      EXPECT_EQ(NotificationReader::open(peer.shared_channel(), "q", 0).error().kind, FailureKind::kInvalidArgument);
      EXPECT_EQ(NotificationReader::open(peer.shared_channel(), "q", ~std::uint32_t{0}).error().kind,
                FailureKind::kInvalidArgument);
      EXPECT_EQ(NotificationReader::open(peer.shared_channel(), "", 1).error().kind, FailureKind::kInvalidArgument);
      peer.arrive();
      auto reader = must(NotificationReader::open(peer.shared_channel(), "q", 3));
      EXPECT_EQ(next(peer, reader), 3U);
      EXPECT_EQ(next(peer, reader), 4U);
      EXPECT_EQ(must(reader.poll()), std::nullopt);
      peer.arrive();
    }
    EXPECT_FALSE(peer.channel().failed());
  });
}

TEST_P(Conformance, NotificationsOutliveTheirWriterAndQueuesCanBeMadeAnew) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    for (std::uint32_t round = 0; round < 20; ++round) {  // rings are given free and used again
      if (peer.index == 0) {
        auto writer = connected_writer(peer, "q");
        for (std::uint32_t i = 0; i < round; ++i) {
          must(writer.notify(round + i));
        }
      } else {
        auto reader = must(NotificationReader::open(peer.shared_channel(), "q", 32));
        for (std::uint32_t i = 0; i < round; ++i) {
          ASSERT_EQ(next(peer, reader), round + i);
        }
        EXPECT_EQ(last_failure(peer, reader), FailureKind::kPeerClosed);
      }
      peer.arrive();
      // And the other way round: without a reader nothing can be sent.
      if (peer.index == 0) {
        auto writer = connected_writer(peer, "r");
        peer.arrive();
        Outcome<void> sent;
        wait_until(peer, [&] { return !(sent = writer.notify(1)); });
        EXPECT_EQ(sent.error().kind, FailureKind::kPeerClosed);
      } else {
        auto reader = must(NotificationReader::open(peer.shared_channel(), "r", 1 << 17));
        peer.arrive();
      }
      peer.arrive();
    }
    EXPECT_FALSE(peer.channel().failed());
  });
}

TEST_P(Conformance, MoreNotificationsThanTheQueueHoldsAreAFailure) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    if (peer.index == 0) {
      auto writer = connected_writer(peer, "q");
      auto done = connected_writer(peer, "done");
      for (std::uint32_t i = 0; i < 5; ++i) {
        must(writer.notify(i, Notification::kAlone));
      }
      must(done.notify(0, Notification::kAlone));
      peer.arrive();
    } else {
      auto reader = must(NotificationReader::open(peer.shared_channel(), "q", 4));
      auto done = must(NotificationReader::open(peer.shared_channel(), "done", 1));
      EXPECT_EQ(next(peer, done), 0U);
      const auto polled = reader.poll();
      ASSERT_FALSE(polled);
      EXPECT_EQ(polled.error().kind, FailureKind::kProtocol);
      EXPECT_NE(polled.error().message.find("queue 'q'"), std::string::npos) << polled.error().message;
      peer.arrive();
    }
  });
}

// The areas of both devices have other sizes than usual: the small one holds what is at its end, the large one a ring
// that would not fit.
TEST_P(Conformance, SignalAreasHaveTheSizeTheyWereGiven) {
  constexpr std::size_t kSmall = SignalArea::kLeastBytes;
  constexpr std::size_t kLarge = 17 << 20;
  constexpr std::uint32_t kCapacity = 2 << 20;
  const auto body = [&](Peer& peer) {
    EXPECT_EQ(peer.channel().peer_signals().bytes(), peer.index == 0 ? kLarge : kSmall);
    std::vector<StaticSender> words;  // a small area is full soon
    const auto fill_area = [&](const std::string& name) {
      auto sender = StaticSender::open(peer.shared_channel(), name + std::to_string(words.size()), bytes_type(1));
      if (sender) {
        words.push_back(std::move(*sender));
      } else {
        EXPECT_EQ(sender.error().kind, FailureKind::kOutOfMemory);
        EXPECT_NE(sender.error().message.find("signal_bytes"), std::string::npos) << sender.error().message;
      }
      return sender.has_value();
    };
    if (peer.index == 0) {
      while (words.size() < 40) {
        ASSERT_TRUE(fill_area("a"));
      }
      auto writer = connected_writer(peer, "q");
      for (std::uint32_t i = 0; i < 3; ++i) {
        must(writer.notify(i));
      }
      auto reader = must(NotificationReader::open(peer.shared_channel(), "back", 8));  // at the end of the small area
      while (fill_area("b")) {
      }
      EXPECT_EQ(NotificationReader::open(peer.shared_channel(), "no room", 8).error().kind, FailureKind::kOutOfMemory);
      EXPECT_EQ(next(peer, reader), 9U);
    } else {
      // Begins 2 before the count wraps around, hence at the ring's last words.
      auto reader = must(NotificationReader::open(peer.shared_channel(), "q", kCapacity, 0xFFFF'FFFE));
      for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(next(peer, reader), i);
      }
      auto writer = connected_writer(peer, "back");
      must(writer.notify(9));
    }
    peer.arrive();
  };
  run_peers(GetParam(), 2, body,
            [](DeviceOptions& options) { options.signal_bytes = options.name == "worker 0" ? kSmall : kLarge; });
}

TEST(NotificationQueue, SignalAreasOfImpossibleSizesAreRefused) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{4095}, std::size_t{4100}, (std::size_t{1} << 30) + 64}) {
    DeviceOptions options;
    options.signal_bytes = bytes;
    const auto device = Device::open(options);
    ASSERT_FALSE(device) << bytes;
    EXPECT_EQ(device.error().kind, FailureKind::kInvalidArgument);
    EXPECT_NE(device.error().message.find("signal_bytes"), std::string::npos);
  }
}

TEST(SignalArea, TakesWhatIsExpectedAndNothingElse) {
  SignalArea area(std::make_shared<MemoryRegion>(must(MemoryRegion::map(1, 0, 1 << 16, {.name = "signals"}))));
  const auto value = [](std::uint32_t tag, std::uint32_t low) { return std::uint64_t{tag} << 32 | low; };
  const std::uint32_t word = must(area.allocate(SignalArea::kWordBytes));
  const std::uint32_t ring = must(area.allocate(1024));
  const std::uint32_t next_ring = must(area.allocate(32));
  const std::uint32_t block = must(area.allocate_block());
  EXPECT_FALSE(area.expects(ring, value(0, 1)));  // of nobody yet
  area.expect(word, 5);
  area.expect_ring(ring, 1024, 6);
  area.expect_ring(next_ring, 32, 7);
  EXPECT_TRUE(area.expects(word, value(5, 1)));
  EXPECT_FALSE(area.expects(word, value(6, 1)));
  EXPECT_FALSE(area.expects(word + 8, value(5, 1)));
  for (std::uint32_t offset = ring; offset < ring + 1024; offset += 8) {
    EXPECT_TRUE(area.expects(offset, value(6, offset)));
    EXPECT_FALSE(area.expects(offset, value(7, offset)));
    EXPECT_FALSE(area.expects(offset + 4, value(6, offset)));
  }
  EXPECT_FALSE(area.expects(ring + 1024, value(6, 1)));
  EXPECT_FALSE(area.expects(ring - 8, value(6, 1)));
  EXPECT_TRUE(area.expects(next_ring + 24, value(7, 1)));
  EXPECT_FALSE(area.expects(next_ring + 32, value(7, 1)));  // the ring is shorter than what was allocated
  EXPECT_FALSE(area.expects(0xFFFF'FFF8, value(7, 1)));
  area.deliver(ring + 16, value(7, 3));
  EXPECT_EQ(load_signal(area.data(), ring + 16), 0U);
  area.deliver(ring + 16, value(6, 3));
  EXPECT_EQ(load_signal(area.data(), ring + 16), value(6, 3));
  // Payload may go to the block alone.
  EXPECT_TRUE(area.is_block(block, SignalArea::kBlockBytes));
  EXPECT_TRUE(area.is_block(block + 120, 8));
  EXPECT_FALSE(area.is_block(block + 121, 8));
  EXPECT_FALSE(area.is_block(block, ~std::uint64_t{0}));
  EXPECT_FALSE(area.is_block(ring, 8));
  EXPECT_FALSE(area.is_block(~std::uint64_t{0}, 8));
  area.free(ring);
  area.free(block);
  EXPECT_FALSE(area.expects(ring + 16, value(6, 3)));
  EXPECT_TRUE(area.expects(next_ring, value(7, 3)));
  EXPECT_FALSE(area.is_block(block, 8));
  EXPECT_EQ(must(area.allocate(1024)), ring);
  EXPECT_EQ(load_signal(area.data(), ring + 16), 0U);  // nothing is left of the earlier use
}

namespace {

class KilledQueues : public ::testing::TestWithParam<Backend> {
 protected:
  static constexpr std::uint64_t kBytes = 4096;
  static constexpr std::uint32_t kCapacity = 16;

  void SetUp() override {
    if (const std::string reason = why_not(GetParam()); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
    memory_ = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory_, MAP_FAILED);
  }
  void TearDown() override {
    if (memory_ != nullptr) {
      ::munmap(memory_, sizeof(Meeting));
    }
  }

  // Until a failure, which is returned; never by itself.
  static Failure write(Peer& peer, std::atomic<std::uint64_t>& written, std::atomic<std::uint64_t>& read) {
    auto region = must(peer.device->allocate(kBytes * kCapacity));
    const auto target = counterpart(peer, *region);
    auto writer = connected_writer(peer, "q");
    std::array<Completion, kCapacity> completions;
    std::optional<Failure> failure;
    for (std::uint64_t i = 0; !failure; ++i) {
      Completion& completion = completions[i % kCapacity];
      const auto free = [&] { return (i < read.load() + kCapacity && completion.done()) || peer.channel().failed(); };
      const Deadline end = in(kLong);
      while (!peer.device->wait(free, in(std::chrono::milliseconds(1))) && Clock::now() < end) {
        // nothing rings here when the other side counts
      }
      const Strided place = Strided::contiguous(i % kCapacity * kBytes, kBytes);
      fill(region->data() + place.offset, kBytes, i);
      if (const auto sent = writer.write_and_notify(*region, place, *target, place, number_of(i), completion)) {
        written.store(i + 1);
      } else {
        failure = sent.error();
      }
    }
    for (Completion& completion : completions) {
      EXPECT_TRUE(peer.device->wait([&] { return completion.done(); }, in(kFailureBound)));
    }
    return *failure;
  }

  static Failure read(Peer& peer, std::atomic<std::uint64_t>& read) {
    auto region = must(peer.device->allocate(kBytes * kCapacity));
    auto reader = must(NotificationReader::open(peer.shared_channel(), "q", kCapacity));
    std::optional<Failure> failure;
    for (std::uint64_t i = 0; !failure; ++i) {
      std::optional<std::uint32_t> number;
      const bool in_time = peer.device->wait(
          [&] {
            const auto polled = reader.poll();
            if (!polled) {
              failure = polled.error();
              return true;
            }
            number = *polled;
            return number.has_value();
          },
          in(kLong));
      if (!in_time ||
          (number && (*number != number_of(i) || !holds(region->data() + i % kCapacity * kBytes, kBytes, i)))) {
        ADD_FAILURE() << "notification " << i << (in_time ? " is not the one sent" : " does not come");
        std::abort();
      }
      if (number) {
        read.store(i + 1);
      }
    }
    return *failure;
  }

  // Worker 0 is killed after `events` were written (or read, when it is the reader).
  void kill(bool writer, std::uint64_t events) {
    SCOPED_TRACE(std::string(writer ? "writer" : "reader") + " killed after " + std::to_string(events));
    auto& meeting = *new (memory_) Meeting(2);
    std::atomic<std::uint64_t>& written = meeting.number(0);
    std::atomic<std::uint64_t>& taken = meeting.number(1);
    const auto start = [&](int index) {
      return fork_child([&, index] {
        enter_place(GetParam(), index);
        Peer peer = join(GetParam(), meeting, index, 2, options_for(GetParam(), index));
        const Failure failure = (index == 0) == writer ? write(peer, written, taken) : read(peer, taken);
        EXPECT_EQ(failure_kind_name(failure.kind), failure_kind_name(FailureKind::kPeerDied)) << failure.message;
        EXPECT_EQ(failure.peer, "worker " + std::to_string(1 - index));
      });
    };
    const int victim = start(0);
    const int survivor = start(1);
    const Deadline end = in(patience(GetParam()));
    while ((writer ? written : taken).load() < events && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    ::kill(victim, SIGKILL);
    EXPECT_EQ(wait_child(victim, std::chrono::seconds(30)), 128 + SIGKILL);
    EXPECT_EQ(wait_child(survivor, std::chrono::seconds(30)), 0);
    EXPECT_GE(written.load(), taken.load() - (writer ? 1 : 0));  // killed before it could count the last one
    if (writer && GetParam() == Backend::kProcesses) {
      EXPECT_GE(taken.load(), written.load()) << "what had been sent was lost";
    }
  }

  void* memory_ = nullptr;
};

TEST_P(KilledQueues, HandOutAllThatHadArrivedAndThenTheFailure) {
  for (const std::uint64_t events : {1, 100, 777}) {
    kill(true, events);
    kill(false, events);
  }
}

INSTANTIATE_TEST_SUITE_P(, KilledQueues, ::testing::ValuesIn(process_backends()),
                         [](const auto& info) { return backend_name(info.param); });

}  // namespace
}  // namespace tesser::transport::testing
