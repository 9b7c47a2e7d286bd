// A link that goes down under running transfers, between two network namespaces.

#include <new>
#include <thread>

#include <sys/mman.h>

#include <gtest/gtest.h>

#include "fault_transfers.h"

namespace tesser::transport::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kBytes = 1'000'000;

// Workers 0 and 2 are in one namespace, worker 1 is in the other.
class LinkDown : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not(Backend::kNamespaces); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
    if (kUnderSanitizer) {
      GTEST_SKIP() << "the time bounds are those of a release build";
    }
    for (void*& memory : memories_) {
      memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(memory, MAP_FAILED);
      new (memory) Meeting(3);
    }
  }
  void TearDown() override {
    set_link(1, true);
    for (void* memory : memories_) {
      if (memory != nullptr) {
        ::munmap(memory, sizeof(Meeting));
      }
    }
  }
  Meeting& meeting(int i) { return *static_cast<Meeting*>(memories_[i]); }

  // Over the link, within one namespace, and over the link again once it is up.
  static constexpr int kOverLink = 0;
  static constexpr int kBeside = 1;
  static constexpr int kAgain = 2;
  void* memories_[3] = {};
};

TEST_P(LinkDown, BothSidesFailOtherChannelsGoOnAndConnectingAgainWorks) {
  Meeting& over_link = meeting(kOverLink);
  const auto transfer = [&](Device& device, const std::shared_ptr<Channel>& channel, int what, Role role) {
    return transfer_until_failure(device, channel, Progress(meeting(what)), role, GetParam(), kBytes);
  };
  const auto note = [&](int index, const std::optional<Failure>& failure) {
    over_link.number(5 + index).store(clock_now());
    ASSERT_TRUE(failure);
    EXPECT_TRUE(failure->kind == FailureKind::kPeerSilent || failure->kind == FailureKind::kLinkDown)
        << failure->message;
    EXPECT_EQ(failure->peer, "worker " + std::to_string(1 - index)) << failure->message;
    over_link.number(index).store(1);
  };
  const int hub = fork_child([&] {
    enter_place(Backend::kNamespaces, 0);
    auto device = *Device::open(options_for(Backend::kNamespaces, 0));
    over_link.publish(0, device->address());
    std::shared_ptr<Channel> channels[3];
    for (int i = 0; i < 2; ++i) {
      auto channel = device->accept(in(seconds(10)));
      ASSERT_TRUE(channel) << channel.error().message;
      channels[std::stoi((*channel)->peer().substr(7))] = *channel;
    }
    EXPECT_EQ(channels[1]->path().path, Path::kTcp);
    std::thread beside([&] {
      const auto failure = transfer(*device, channels[2], kBeside, Role::kSender);
      EXPECT_FALSE(failure) << failure->message;
    });
    note(0, transfer(*device, channels[1], kOverLink, Role::kSender));
    auto again = device->accept(in(seconds(30)));
    EXPECT_TRUE(again);
    if (again) {
      const auto failure = transfer(*device, *again, kAgain, Role::kSender);
      EXPECT_FALSE(failure) << failure->message;
    }
    beside.join();
  });
  const int across = fork_child([&] {
    enter_place(Backend::kNamespaces, 1);
    auto device = *Device::open(options_for(Backend::kNamespaces, 1));
    auto channel = device->connect(over_link.address(0), in(seconds(10)));
    ASSERT_TRUE(channel) << channel.error().message;
    note(1, transfer(*device, *channel, kOverLink, Role::kReceiver));
    while (over_link.number(2).load() == 0) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    auto again = device->connect(over_link.address(0), in(seconds(10)));
    ASSERT_TRUE(again) << again.error().message;
    const auto failure = transfer(*device, *again, kAgain, Role::kReceiver);
    EXPECT_FALSE(failure) << failure->message;
  });
  const int neighbour = fork_child([&] {
    enter_place(Backend::kNamespaces, 2);
    auto device = *Device::open(options_for(Backend::kNamespaces, 2));
    auto channel = device->connect(over_link.address(0), in(seconds(10)));
    ASSERT_TRUE(channel) << channel.error().message;
    const auto failure = transfer(*device, *channel, kBeside, Role::kReceiver);
    EXPECT_FALSE(failure) << failure->message;
  });
  Progress beside(meeting(kBeside));
  ASSERT_TRUE(wait_for_transfers(Progress(over_link), 20));
  ASSERT_TRUE(wait_for_transfers(beside, 20));
  const std::uint64_t down_at = clock_now();
  ASSERT_TRUE(set_link(1, false));
  const Deadline end = in(seconds(20));
  while ((over_link.number(0).load() == 0 || over_link.number(1).load() == 0) && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (const int index : {0, 1}) {
    EXPECT_EQ(over_link.number(index).load(), 1U);
    EXPECT_LT(static_cast<double>(over_link.number(5 + index).load() - down_at) * 1e-9,
              std::chrono::duration<double>(kFailureBound).count());
  }
  EXPECT_TRUE(wait_for_transfers(beside, beside.transferred().load() + 20)) << "the other channel stands still";
  ASSERT_TRUE(set_link(1, true));
  over_link.number(2).store(1);
  Progress again(meeting(kAgain));
  EXPECT_TRUE(wait_for_transfers(again, 20));
  again.finish().store(1);
  beside.finish().store(1);
  EXPECT_EQ(wait_child(across, seconds(30)), 0);
  EXPECT_EQ(wait_child(neighbour, seconds(30)), 0);
  EXPECT_EQ(wait_child(hub, seconds(30)), 0);
}

INSTANTIATE_TEST_SUITE_P(, LinkDown, ::testing::Values(Kind::kStatic, Kind::kDynamic),
                         [](const auto& info) { return info.param == Kind::kStatic ? "Static" : "Dynamic"; });

}  // namespace
}  // namespace tesser::transport::testing
