// Real processes that are killed or stopped at random points of their transfers: what both sides see, when, and that no
// half tensor is ever taken for a whole one.

#include <csignal>
#include <cstdlib>
#include <map>
#include <new>
#include <random>
#include <thread>

#include <sys/mman.h>

#include <gtest/gtest.h>

#include "fault_transfers.h"
#include "transport/static_transfer.h"

namespace tesser::transport::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

enum class Hit : std::uint8_t {
  kKill,
  kStop,   // until the other side has given it up, and then it runs again
  kPause,  // too short for that: nothing may happen
};

struct Schedule {
  unsigned seed = 0;
  Hit hit = Hit::kKill;
  Role victim = Role::kSender;
  Kind kind = Kind::kStatic;
  std::uint64_t bytes = 0;
  std::uint64_t tensors = 0;  // that have been begun or received
  microseconds delay{0};      // after that
  milliseconds pause{0};

  std::string text() const {
    const char* hits[] = {"kill", "stop", "pause"};
    std::string text = "seed " + std::to_string(seed) + ": " + hits[static_cast<int>(hit)];
    text += victim == Role::kSender ? " the sender" : " the receiver";
    text += kind == Kind::kStatic ? ", static, " : ", dynamic, ";
    text += std::to_string(bytes) + " bytes, " + std::to_string(delay.count()) + " us after tensor event " +
            std::to_string(tensors);
    return hit == Hit::kPause ? text + ", for " + std::to_string(pause.count()) + " ms" : text;
  }
};

Schedule random_schedule(unsigned seed) {
  std::mt19937 random(seed);
  Schedule schedule;
  schedule.seed = seed;
  const unsigned hit = random() % 8;  // stops take their seconds, so there are fewer
  schedule.hit = hit < 5 ? Hit::kKill : hit == 5 ? Hit::kStop : Hit::kPause;
  schedule.victim = random() % 2 == 0 ? Role::kSender : Role::kReceiver;
  schedule.kind = random() % 2 == 0 ? Kind::kStatic : Kind::kDynamic;
  const std::uint64_t sizes[] = {64, 4096, 8200, 100'000, 1'000'000, 8'000'000};
  schedule.bytes = sizes[random() % std::size(sizes)];
  schedule.tensors = random() % 3 == 0 ? 0 : random() % 60;
  schedule.delay = microseconds(random() % 3000);
  schedule.pause = milliseconds(random() % 1500);
  return schedule;
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

  // Worker 0 is hit, worker 1 survives. Each leaves its failure's kind + 1, or 1000 when all went well.
  static constexpr std::uint64_t kNoFailure = 1000;
  int start(Meeting& meeting, const Schedule& schedule, int index) {
    return fork_child([&, index] {
      enter_place(GetParam(), index);
      Peer peer = join(GetParam(), meeting, index, 2, options_for(GetParam(), index));
      const Role role = index == 0 ? schedule.victim : opposite(schedule.victim);
      const auto failure = transfer_until_failure(*peer.device, peer.shared_channel(), Progress(meeting), role,
                                                  schedule.kind, schedule.bytes);
      meeting.number(5 + index).store(clock_now());
      meeting.number(index).store(failure ? 1 + static_cast<std::uint64_t>(failure->kind) : kNoFailure);
      if (failure) {
        const std::string other = "worker " + std::to_string(1 - index);
        EXPECT_EQ(failure->peer, other) << failure->message;
        EXPECT_NE(failure->message.find(other), std::string::npos) << failure->message;
      }
    });
  }

  static std::string ending(Meeting& meeting, int index) {
    const std::uint64_t number = meeting.number(index).load();
    return number == 0            ? "unknown"
           : number == kNoFailure ? "no failure"
                                  : std::string(failure_kind_name(static_cast<FailureKind>(number - 1)));
  }

  void run(const Schedule& schedule) {
    SCOPED_TRACE(schedule.text());
    Meeting& meeting = new_meeting(2);
    Progress progress(meeting);
    const int victim = start(meeting, schedule, 0);
    const int survivor = start(meeting, schedule, 1);
    ASSERT_TRUE(wait_for_transfers(progress, 1 + schedule.tensors)) << "transfers did not start";
    std::this_thread::sleep_for(schedule.delay);
    const std::uint64_t hit_at = clock_now();
    ::kill(victim, schedule.hit == Hit::kKill ? SIGKILL : SIGSTOP);
    if (schedule.hit == Hit::kPause) {
      std::this_thread::sleep_for(schedule.pause);
      ::kill(victim, SIGCONT);
      EXPECT_TRUE(wait_for_transfers(progress, progress.transferred().load() + 4)) << "transfers do not go on";
      progress.finish().store(1);
    }
    EXPECT_EQ(wait_child(survivor, seconds(30)), 0);
    const std::string seen = ending(meeting, 1);
    const double seconds_taken = static_cast<double>(meeting.number(6).load() - hit_at) * 1e-9;
    if (schedule.hit == Hit::kPause) {
      EXPECT_EQ(seen, "no failure");
    } else {
      EXPECT_EQ(seen, schedule.hit == Hit::kKill ? "peer-died" : "peer-silent");
      EXPECT_LT(seconds_taken, std::chrono::duration<double>(kFailureBound).count());
    }
    ::kill(victim, SIGCONT);
    EXPECT_EQ(wait_child(victim, seconds(30)), schedule.hit == Hit::kKill ? 128 + SIGKILL : 0);
    const std::string own = ending(meeting, 0);
    if (schedule.hit == Hit::kPause) {
      EXPECT_EQ(own, "no failure");
    } else if (schedule.hit == Hit::kStop) {
      // It is told, unless the survivor is gone altogether before it looks.
      EXPECT_TRUE(own == "expelled" || own == "peer-died" || own == "peer-closed") << own;
    }
    if (std::getenv("TESSER_FAULT_SCHEDULES") != nullptr) {
      std::printf("%s %s: survivor: %s after %.3f s; victim: %s; %llu tensor events\n",
                  backend_name(GetParam()).c_str(), schedule.text().c_str(), seen.c_str(), seconds_taken, own.c_str(),
                  static_cast<unsigned long long>(progress.transferred().load()));
    }
  }

  void* memory_ = nullptr;
};

unsigned number_from(const char* variable, unsigned otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::max(1, std::atoi(text)));
}

// A sample. TESSER_FAULT_SCHEDULES=100 runs more, from TESSER_FAULT_SEED on, and says how each ended.
TEST_P(Faults, RandomSchedules) {
  const unsigned first = number_from("TESSER_FAULT_SEED", 1);
  const unsigned count = number_from("TESSER_FAULT_SCHEDULES", 9);
  for (unsigned seed = first; seed < first + count && !HasFailure(); ++seed) {
    run(random_schedule(seed));
  }
}

TEST_P(Faults, OtherChannelsGoOnAndANewPeerTakesTheDeadOnesPlace) {
  Meeting& meeting = new_meeting(3);
  const auto other = [&](int index, bool dies) {
    return fork_child([&meeting, index, dies] {
      enter_place(GetParam(), index);
      auto device = *Device::open(options_for(GetParam(), index));
      const auto channel = connect_to(GetParam(), *device, meeting.address(0));
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
    enter_place(GetParam(), 0);
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
      auto channel = device->accept(in(patience(GetParam())));
      ASSERT_TRUE(channel) << channel.error().message;
      auto sender = StaticSender::open(*channel, "t", {DType::kUInt8, {64}});
      ASSERT_TRUE(sender);
      served.push_back({*channel, std::make_unique<StaticSender>(std::move(*sender))});
    };
    accept();
    accept();
    const Deadline end = in(patience(GetParam()));
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
  EXPECT_EQ(wait_child(dying, patience(GetParam())), 128 + SIGKILL);
  const Deadline end = in(patience(GetParam()));
  while (meeting.number(5).load() == 0 && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  const int successor = other(1, false);
  EXPECT_EQ(wait_child(staying, patience(GetParam())), 0);
  EXPECT_EQ(wait_child(successor, patience(GetParam())), 0);
  EXPECT_EQ(wait_child(hub, patience(GetParam())), 0);
}

INSTANTIATE_TEST_SUITE_P(, Faults, ::testing::ValuesIn(process_backends()),
                         [](const auto& info) { return backend_name(info.param); });

}  // namespace
}  // namespace tesser::transport::testing
