// Real processes that are killed or stopped at random points of their transfers: what the survivor sees, when, and that
// no half tensor is ever taken for a whole one.

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <thread>

#include <sys/mman.h>

#include <gtest/gtest.h>

#include "peer_group.h"
#include "transport/dynamic_transfer.h"
#include "transport/static_transfer.h"

namespace tesser::transport::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kBytes = 1'000'000;
constexpr seconds kBound{5};

enum class Role : std::uint8_t { kSender, kReceiver };
enum class Kind : std::uint8_t { kStatic, kDynamic };

void mark(MemoryRegion& region, std::uint64_t round) {
  auto* words = reinterpret_cast<std::uint64_t*>(region.data());
  std::fill(words, words + kBytes / 8, round);
}

bool is_whole(const std::byte* data) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(data);
  return std::all_of(words, words + kBytes / 8, [&](std::uint64_t word) { return word == words[0]; });
}

// Transfers until the channel fails; returns why. Counts in number(3), so that the test knows when transfers run.
Failure transfer_until_failure(Peer& peer, Role role, Kind kind) {
  auto region = *peer.device->allocate(kBytes);
  const Strided place = Strided::contiguous(0, kBytes);
  const TensorType type{DType::kUInt8, {static_cast<std::int64_t>(kBytes)}};
  std::optional<Failure> failure;
  const auto ask = [&](auto&& question) {
    peer.device->wait(
        [&] {
          const auto answer = question();
          if (!answer) {
            failure = answer.error();
            return true;
          }
          return static_cast<bool>(*answer);
        },
        in(seconds(60)));
    return !failure;
  };
  Completion completion;
  const auto completed = [&]() -> Outcome<bool> {
    if (!completion.done()) {
      return false;
    }
    TESSER_TRANSPORT_RETURN_IF_FAILED(completion.outcome());
    return true;
  };
  std::uint64_t round = 0;
  if (kind == Kind::kStatic && role == Role::kSender) {
    auto sender = *StaticSender::open(peer.shared_channel(), "t", type);
    do {
      mark(*region, ++round);
      peer.meeting->number(3).fetch_add(1);
    } while (ask([&] { return sender.try_send(*region, place, completion); }) && ask(completed));
  } else if (kind == Kind::kStatic) {
    auto receiver = *StaticReceiver::open(peer.shared_channel(), "t", type, region, place);
    receiver.grant();
    while (ask([&] { return receiver.poll(); })) {
      EXPECT_TRUE(is_whole(region->data()));
      peer.meeting->number(3).fetch_add(1);
      receiver.grant();
    }
  } else if (role == Role::kSender) {
    auto sender = *DynamicSender::open(peer.shared_channel(), "t", region);
    do {
      mark(*region, ++round);
      peer.meeting->number(3).fetch_add(1);
    } while (ask([&] { return sender.try_send(type.dtype, type.shape, 0); }) && ask([&] { return sender.released(); }));
  } else {
    auto receiver = *DynamicReceiver::open(peer.shared_channel(), "t");
    while (ask([&]() -> Outcome<bool> {
      TESSER_TRANSPORT_ASSIGN(const IncomingTensor* tensor, receiver.poll());
      return tensor != nullptr;
    })) {
      if (const auto begun = receiver.receive(*region, place, completion); !begun) {
        failure = begun.error();
        break;
      }
      if (!ask(completed)) {
        break;
      }
      EXPECT_TRUE(is_whole(region->data()));
      peer.meeting->number(3).fetch_add(1);
      receiver.release();
    }
  }
  // The completion lives on this stack.
  EXPECT_TRUE(peer.device->wait([&] { return completion.done(); }, in(kBound)));
  return failure.value_or(Failure{FailureKind::kTimeout, "", "nothing failed in a minute"});
}

class Faults : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not(GetParam()); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
    if (kUnderSanitizer) {
      GTEST_SKIP() << "the time bounds are those of a release build";
    }
    void* memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    memory_ = memory;
  }
  void TearDown() override {
    if (memory_ != nullptr) {
      ::munmap(memory_, sizeof(Meeting));
    }
  }
  Meeting& new_meeting(int peers) { return *new (memory_) Meeting(peers); }

  static std::uint64_t now() { return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()); }

  // One schedule: worker 0 is hit, worker 1 reports kind and time in numbers 0 and 1; the victim's own view in 2.
  void hit(int signal, Role victim_role, Kind kind, unsigned seed) {
    Meeting& meeting = new_meeting(2);
    const int victim = fork_child([&] {
      Peer peer = join(GetParam(), meeting, 0, 2, options_for(GetParam(), 0));
      const Failure failure = transfer_until_failure(peer, victim_role, kind);
      meeting.number(2).store(1 + static_cast<std::uint64_t>(failure.kind));
    });
    const int survivor = fork_child([&] {
      Peer peer = join(GetParam(), meeting, 1, 2, options_for(GetParam(), 1));
      const Failure failure =
          transfer_until_failure(peer, victim_role == Role::kSender ? Role::kReceiver : Role::kSender, kind);
      meeting.number(1).store(now());
      meeting.number(0).store(1 + static_cast<std::uint64_t>(failure.kind));
      EXPECT_EQ(failure.peer, "worker 0") << failure.message;
      EXPECT_NE(failure.message.find("worker 0"), std::string::npos) << failure.message;
    });
    const Deadline end = in(seconds(20));
    while (meeting.number(3).load() < 4 && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ASSERT_GE(meeting.number(3).load(), 4U) << "transfers did not start";
    std::mt19937 random(seed);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    const std::uint64_t hit_at = now();
    ::kill(victim, signal);
    EXPECT_EQ(wait_child(survivor, seconds(20)), 0);
    const auto seen = static_cast<FailureKind>(meeting.number(0).load() - 1);
    EXPECT_EQ(failure_kind_name(seen),
              failure_kind_name(signal == SIGKILL ? FailureKind::kPeerDied : FailureKind::kPeerSilent));
    const double seconds_taken = static_cast<double>(meeting.number(1).load() - hit_at) * 1e-9;
    EXPECT_LT(seconds_taken, 5.0);
    if (signal == SIGSTOP) {
      ::kill(victim, SIGCONT);
      EXPECT_EQ(wait_child(victim, seconds(20)), 0);
      const auto own = static_cast<FailureKind>(meeting.number(2).load() - 1);
      // It is told, unless the survivor is gone altogether before it looks.
      EXPECT_TRUE(own == FailureKind::kExpelled || own == FailureKind::kPeerDied || own == FailureKind::kPeerClosed)
          << failure_kind_name(own);
    } else {
      EXPECT_EQ(wait_child(victim, seconds(20)), 128 + SIGKILL);
    }
  }

  void* memory_ = nullptr;
};

// TESSER_FAULT_SCHEDULES=100 runs as many random schedules of each kind; the default keeps the suite short.
int schedules(int otherwise) {
  const char* text = std::getenv("TESSER_FAULT_SCHEDULES");
  return text == nullptr ? otherwise : std::max(1, std::atoi(text));
}

TEST_P(Faults, AKilledPeerIsAFailureAtOnce) {
  for (int i = 0; i < schedules(3); ++i) {
    for (const Role role : {Role::kSender, Role::kReceiver}) {
      for (const Kind kind : {Kind::kStatic, Kind::kDynamic}) {
        hit(SIGKILL, role, kind,
            static_cast<unsigned>(i * 4 + (role == Role::kSender ? 2 : 0) + (kind == Kind::kStatic ? 1 : 0)));
        if (HasFailure()) {
          return;
        }
      }
    }
  }
}

TEST_P(Faults, AStoppedPeerIsAFailureWithinFiveSeconds) {
  for (int i = 0; i < schedules(1); ++i) {
    hit(SIGSTOP, i % 2 == 0 ? Role::kSender : Role::kReceiver, i % 4 < 2 ? Kind::kStatic : Kind::kDynamic,
        static_cast<unsigned>(i));
    if (HasFailure()) {
      return;
    }
  }
}

TEST_P(Faults, OtherChannelsGoOnAndANewPeerTakesTheDeadOnesPlace) {
  Meeting& meeting = new_meeting(3);
  const auto other = [&](int index, bool dies) {
    return fork_child([&meeting, index, dies] {
      auto device = *Device::open(options_for(GetParam(), index));
      const auto channel = device->connect(meeting.address(0), in(seconds(10)));
      ASSERT_TRUE(channel) << channel.error().message;
      auto region = *device->allocate(64);
      auto receiver = *StaticReceiver::open(*channel, "t", {DType::kUInt8, {64}}, region, Strided::contiguous(0, 64));
      for (int round = 0; dies || round < 50; ++round) {
        receiver.grant();
        const bool arrived = device->wait([&] { return receiver.poll().value_or(true); }, in(seconds(30)));
        ASSERT_TRUE(arrived);
        if (dies && round == 5) {
          ::kill(::getpid(), SIGKILL);
        }
      }
    });
  };
  const int hub = fork_child([&] {
    auto device = *Device::open(options_for(GetParam(), 0));
    meeting.publish(0, device->address());
    auto region = *device->allocate(64);
    struct Served {
      std::shared_ptr<Channel> channel;
      std::unique_ptr<StaticSender> sender;
      int sent = 0;
    };
    std::map<std::string, int> finished;
    std::vector<Served> served;
    int deaths = 0;
    Completion completion;
    const auto accept = [&] {
      auto channel = device->accept(in(seconds(10)));
      ASSERT_TRUE(channel) << channel.error().message;
      auto sender = StaticSender::open(*channel, "t", {DType::kUInt8, {64}});
      ASSERT_TRUE(sender);
      served.push_back({*channel, std::make_unique<StaticSender>(std::move(*sender))});
    };
    accept();
    accept();
    const Deadline end = in(seconds(30));
    while (finished.size() < 2 && Clock::now() < end && !HasFailure()) {
      for (std::size_t i = 0; i < served.size(); ++i) {
        const auto sent = served[i].sender->try_send(*region, Strided::contiguous(0, 64), completion);
        if (sent) {
          served[i].sent += *sent ? 1 : 0;
          if (served[i].sent == 50) {
            finished[served[i].channel->peer()] = 50;
          }
        } else if (sent.error().kind == FailureKind::kPeerDied) {
          EXPECT_EQ(sent.error().peer, "worker 1");
          ++deaths;
          served.erase(served.begin() + static_cast<std::ptrdiff_t>(i));
          meeting.number(5).store(1);
          accept();  // its successor, of the same name
          break;
        } else {
          EXPECT_EQ(sent.error().kind, FailureKind::kPeerClosed) << sent.error().message;
          served.erase(served.begin() + static_cast<std::ptrdiff_t>(i));
          break;
        }
      }
      device->progress();
    }
    EXPECT_EQ(deaths, 1);
    EXPECT_EQ(finished.size(), 2U);
    EXPECT_TRUE(device->wait([&] { return completion.done(); }, in(seconds(5))));
    meeting.number(6).store(1);
    std::this_thread::sleep_for(milliseconds(300));  // the last ones are still reading
  });
  const int dying = other(1, true);
  const int staying = other(2, false);
  EXPECT_EQ(wait_child(dying, seconds(30)), 128 + SIGKILL);
  const Deadline end = in(seconds(20));
  while (meeting.number(5).load() == 0 && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  const int successor = other(1, false);
  EXPECT_EQ(wait_child(staying, seconds(30)), 0);
  EXPECT_EQ(wait_child(successor, seconds(30)), 0);
  EXPECT_EQ(wait_child(hub, seconds(30)), 0);
}

INSTANTIATE_TEST_SUITE_P(, Faults, ::testing::Values(Backend::kProcesses, Backend::kTcp),
                         [](const auto& info) { return backend_name(info.param); });

}  // namespace
}  // namespace tesser::transport::testing
