// Memory that cannot be had or registered, and processes that fork while they transfer.

#include <csignal>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fault_transfers.h"
#include "transport/dynamic_transfer.h"
#include "transport/registered_arena.h"

namespace tesser::transport::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kMiB = 1 << 20;

// Lets this process map no more than `bytes` beyond what it has mapped.
void limit_address_space(std::uint64_t bytes) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * 4096 + bytes, pages * 4096 + bytes};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

class MemoryFaults : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not(GetParam()); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
    if (kUnderSanitizer) {
      GTEST_SKIP() << "a sanitizer maps terabytes and has time bounds of its own";
    }
  }
};

TEST_P(MemoryFaults, MemoryThatCannotBeHadIsAFailureAndLessCanStillBeHad) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    limit_address_space(128 * kMiB);
    const auto refused = peer.device->allocate(512 * kMiB, {.name = "activations"});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::kOutOfMemory);
    EXPECT_NE(refused.error().message.find("'activations'"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("536870912"), std::string::npos) << refused.error().message;
    EXPECT_TRUE(peer.device->allocate(kMiB));
    EXPECT_FALSE(peer.channel().failed());
    peer.arrive();
  });
}

TEST_P(MemoryFaults, ATensorTooLargeForTheArenaIsAFailureAndStaysOffered) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto arena = RegisteredArena(*peer.device->allocate(kMiB));
    const auto wait = [&](const std::function<bool()>& ready) {
      ASSERT_TRUE(peer.device->wait(ready, in(seconds(20))));
    };
    if (peer.index == 0) {
      auto sender = *DynamicSender::open(peer.shared_channel(), "t", arena.region());
      std::memset(arena.region()->data(), 7, 600'000);
      wait([&] { return *sender.try_send(DType::kUInt8, {600'000}, 0); });
      wait([&] { return *sender.released(); });
    } else {
      auto receiver = *DynamicReceiver::open(peer.shared_channel(), "t");
      const std::uint64_t taken = *arena.allocate(600'000);
      wait([&] { return *receiver.poll() != nullptr; });
      Completion completion;
      const auto refused = receiver.receive(arena, completion);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().kind, FailureKind::kOutOfMemory);
      arena.free(taken);
      const auto offset = receiver.receive(arena, completion);
      ASSERT_TRUE(offset) << offset.error().message;
      wait([&] { return completion.done(); });
      EXPECT_EQ(arena.at(*offset)[599'999], std::byte{7});
      receiver.release();
    }
    peer.arrive();
  });
}

TEST_P(MemoryFaults, AForkAfterRegistrationLeavesTransfersRight) {
  run_peers(
      GetParam(), 2,
      [](Peer& peer) {
        std::vector<char> own(16 * kMiB, 1);  // private memory, of which the child gets a copy
        std::vector<int> children;
        Progress progress(*peer.meeting);
        std::thread forks([&] {
          for (int i = 0; i < 3; ++i) {
            wait_for_transfers(progress, 20 * (i + 1));
            const int child = ::fork();
            if (child == 0) {
              std::memset(own.data(), 2, own.size());
              ::usleep(i == 0 ? 0 : 300'000);  // one ends at once, others live on while tensors go
              ::_exit(0);
            }
            children.push_back(child);
            std::memset(own.data(), 3, own.size());
          }
          wait_for_transfers(progress, 100);
          if (peer.index == 0) {
            progress.finish().store(1);
          }
        });
        const auto failure =
            transfer_until_failure(*peer.device, peer.shared_channel(), progress,
                                   peer.index == 0 ? Role::kSender : Role::kReceiver, Kind::kStatic, 200'000);
        EXPECT_FALSE(failure) << failure->message;
        forks.join();
        for (const int child : children) {
          EXPECT_EQ(wait_child(child, seconds(10)), 0);
        }
      },
      [](DeviceOptions& options) { options.silence = seconds(30); });  // a fork that copies locked pages takes its time
}

// The child keeps the parent's sockets open, so that only silence tells.
TEST_P(MemoryFaults, AKilledParentOfALivingChildIsAFailureWithinFiveSeconds) {
  void* memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& meeting = *new (memory) Meeting(2);
  Progress progress(meeting);
  const int victim = fork_child([&] {
    enter_place(GetParam(), 0);
    Peer peer = join(GetParam(), meeting, 0, 2, options_for(GetParam(), 0));
    const int child = ::fork();
    if (child == 0) {
      ::sleep(6);
      ::_exit(0);
    }
    transfer_until_failure(*peer.device, peer.shared_channel(), progress, Role::kSender, Kind::kStatic, 100'000);
  });
  const int survivor = fork_child([&] {
    enter_place(GetParam(), 1);
    Peer peer = join(GetParam(), meeting, 1, 2, options_for(GetParam(), 1));
    const auto failure =
        transfer_until_failure(*peer.device, peer.shared_channel(), progress, Role::kReceiver, Kind::kStatic, 100'000);
    meeting.number(6).store(clock_now());
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure_kind_name(failure->kind), "peer-silent") << failure->message;
  });
  ASSERT_TRUE(wait_for_transfers(progress, 10));
  const std::uint64_t killed_at = clock_now();
  ::kill(victim, SIGKILL);
  EXPECT_EQ(wait_child(survivor, seconds(20)), 0);
  EXPECT_LT(static_cast<double>(meeting.number(6).load() - killed_at) * 1e-9,
            std::chrono::duration<double>(kFailureBound).count());
  EXPECT_EQ(wait_child(victim, seconds(20)), 128 + SIGKILL);
  ::munmap(memory, sizeof(Meeting));
}

INSTANTIATE_TEST_SUITE_P(, MemoryFaults, ::testing::ValuesIn(process_backends()),
                         [](const auto& info) { return backend_name(info.param); });

// Shared memory: the other side must map what is offered.
TEST(MappingFaults, APeerThatCannotMapARegionFailsOnBothSidesAndOthersGoOn) {
  if (kUnderSanitizer) {
    GTEST_SKIP() << "a sanitizer maps terabytes";
  }
  run_peers(Backend::kProcesses, 3, [](Peer& peer) {
    if (peer.index == 1) {
      limit_address_space(128 * kMiB);
    }
    peer.arrive();
    std::shared_ptr<MemoryRegion> region;
    if (peer.index == 0) {
      region = *peer.device->allocate(512 * kMiB, {.name = "activations"});
    }
    if (peer.index != 2) {
      Channel& channel = *peer.channels[1 - peer.index];
      ASSERT_TRUE(peer.device->wait([&] { return channel.failed(); }, in(seconds(10))));
      EXPECT_EQ(channel.failure()->kind, peer.index == 1 ? FailureKind::kOutOfMemory : FailureKind::kExpelled);
      EXPECT_NE(channel.failure()->message.find("536870912"), std::string::npos) << channel.failure()->message;
    }
    EXPECT_FALSE(peer.channels[peer.index == 2 ? 0 : 2]->failed());
    peer.arrive();
  });
}

// Over verbs all memory is locked, and an unprivileged process may lock little.
TEST(RegistrationFaults, MemoryBeyondTheLimitOfLockedMemoryIsRefused) {
  if (const std::string reason = why_not_verbs(); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  void* memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& meeting = *new (memory) Meeting(2);
  const auto check = [](const Failure& failure) {
    EXPECT_EQ(failure_kind_name(failure.kind), "registration-refused") << failure.message;
    EXPECT_NE(failure.message.find("'activations'"), std::string::npos) << failure.message;
    EXPECT_NE(failure.message.find("ulimit -l"), std::string::npos) << failure.message;
  };
  const int limited = fork_child([&] {
    const rlimit limit{256 * kMiB, 256 * kMiB};  // UCX's own buffers fit
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    ASSERT_EQ(::setgid(65534), 0);
    ASSERT_EQ(::setuid(65534), 0);  // root may lock what it likes
    {
      // Before the adapter is opened: the first connection registers all regions.
      auto device = *Device::open(options_for(Backend::kRc, 0));
      ASSERT_TRUE(device->allocate(512 * kMiB, {.name = "activations"}));
      const auto refused = device->connect(meeting.address(1), in(seconds(20)));
      ASSERT_FALSE(refused);
      check(refused.error());
    }
    // And once it is open.
    auto device = *Device::open(options_for(Backend::kRc, 0));
    const auto channel = connect_to(Backend::kRc, *device, meeting.address(1));
    ASSERT_TRUE(channel) << channel.error().message;
    const auto refused = device->allocate(512 * kMiB, {.name = "activations"});
    ASSERT_FALSE(refused);
    check(refused.error());
    EXPECT_FALSE((*channel)->failed());
    EXPECT_TRUE(device->allocate(kMiB));
    meeting.number(0).store(1);
  });
  const int other = fork_child([&] {
    auto device = *Device::open(options_for(Backend::kRc, 1));
    meeting.publish(1, device->address());
    const auto channel = device->accept(in(seconds(60)));
    ASSERT_TRUE(channel) << channel.error().message;
    const Deadline end = in(seconds(30));
    while (meeting.number(0).load() == 0 && Clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  EXPECT_EQ(wait_child(limited, seconds(100)), 0);
  EXPECT_EQ(wait_child(other, seconds(100)), 0);
  ::munmap(memory, sizeof(Meeting));
}

}  // namespace
}  // namespace tesser::transport::testing
