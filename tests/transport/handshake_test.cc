// Who may connect to whom, and what the other side is told.

#include <cstring>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "peer_group.h"
#include "transport/handshake.h"
#include "transport/socket.h"
#include "transport/static_transfer.h"
#include "transport/wire.h"

namespace tesser::transport::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<Device> open(DeviceOptions options) {
  auto device = Device::open(std::move(options));
  if (!device) {
    ADD_FAILURE() << device.error().message;
    std::abort();
  }
  return std::move(*device);
}

DeviceOptions named(std::string name) {
  DeviceOptions options;
  options.name = std::move(name);
  options.run = 1;
  return options;
}

std::string place_of(const Device& device) {
  const std::string address = device.address();
  return address.substr(0, address.find('/'));
}

void expect_refusal(DeviceOptions there, DeviceOptions here, FailureKind kind, const std::string& words) {
  const auto server = open(std::move(there));
  const auto client = open(std::move(here));
  const auto channel = client->connect(place_of(*server), in(seconds(5)));
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().kind, kind) << channel.error().message;
  EXPECT_EQ(channel.error().message.find(words) == std::string::npos ? channel.error().message : words, words);
  EXPECT_FALSE(server->accept(in(milliseconds(50))));
}

TEST(Handshake, AnotherRunIsRefused) {
  DeviceOptions other = named("new");
  other.run = 2;
  expect_refusal(named("old"), other, FailureKind::kWrongRun, "run");
}

TEST(Handshake, AnEarlierEpochIsRefused) {
  DeviceOptions other = named("new");
  other.epoch = 3;
  expect_refusal(named("old"), other, FailureKind::kWrongRun, "epoch");
}

TEST(Handshake, ADeviceAtTheAddressOfAnotherIsRefused) {
  const auto server = open(named("server"));
  const auto client = open(named("client"));
  const auto channel = client->connect(place_of(*server) + "/0123456789abcdef", in(seconds(5)));
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().kind, FailureKind::kWrongPeer) << channel.error().message;
}

TEST(Handshake, ADeviceCannotConnectToItself) {
  const auto device = open(named("alone"));
  const auto channel = device->connect(device->address(), in(seconds(5)));
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().kind, FailureKind::kInvalidArgument) << channel.error().message;
}

TEST(Handshake, PathsThatDoNotMeetAreAFailureAndNoSilentFallBack) {
  DeviceOptions there = named("server");
  there.paths = Paths::kTcpOnly;
  DeviceOptions here = named("client");
  here.paths = Paths::kSharedMemoryOnly;
  expect_refusal(there, here, FailureKind::kUnreachable, "server is set not to use shared memory");
}

TEST(Handshake, AddressesThatAreNoneAreRefused) {
  const auto device = open(named("client"));
  for (const char* address :
       {"", "host", "host:", "host:70000", "host:1x", "127.0.0.1:1/", "127.0.0.1:1/xyz", "127.0.0.1:1/0"}) {
    const auto channel = device->connect(address, in(seconds(1)));
    ASSERT_FALSE(channel) << address;
    EXPECT_EQ(channel.error().kind, FailureKind::kInvalidArgument) << address << ": " << channel.error().message;
  }
}

TEST(Handshake, NobodyThereIsAFailureAtTheDeadline) {
  const auto device = open(named("client"));
  std::string address;
  { address = place_of(*open(named("gone"))); }
  const Deadline begin = Clock::now();
  const auto channel = device->connect(address, in(milliseconds(200)));
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().kind, FailureKind::kUnreachable) << channel.error().message;
  EXPECT_LT(Clock::now() - begin, seconds(2));
}

TEST(Handshake, APeerThatStartsLaterIsWaitedFor) {
  std::string address;
  { address = place_of(*open(named("gone"))); }
  const auto client = open(named("client"));
  std::unique_ptr<Device> late;
  std::thread starts([&] {
    std::this_thread::sleep_for(milliseconds(100));
    DeviceOptions options = named("late");
    options.listen = address;
    late = open(std::move(options));
  });
  EXPECT_TRUE(client->connect(address, in(seconds(10))));
  starts.join();
}

// Whatever connects to a device's port, the device goes on.
class RawClient : public ::testing::Test {
 protected:
  std::unique_ptr<Device> server = open(named("server"));
  Descriptor socket = std::move(*connect_tcp(*parse_host_port(place_of(*server)), in(seconds(5))));

  void send(const std::string& bytes) {
    ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void expect_server_goes_on() {
    const auto client = open(named("client"));
    const auto channel = client->connect(server->address(), in(seconds(5)));
    EXPECT_TRUE(channel) << channel.error().message;
    EXPECT_TRUE(server->accept(in(seconds(5))));
  }
};

TEST_F(RawClient, ARequestOfHttpIsHungUpOn) {
  send("GET / HTTP/1.1\r\nHost: server\r\n\r\n");
  EXPECT_FALSE(receive_frame(socket.get(), "server", in(seconds(5))));
  expect_server_goes_on();
}

TEST_F(RawClient, SilenceKeepsNobodyElseWaiting) { expect_server_goes_on(); }

TEST_F(RawClient, AnotherVersionIsToldBoth) {
  const std::string hello = WireWriter().put(std::uint64_t{0x5054524553534554}).put(std::uint32_t{99}).take();
  ASSERT_TRUE(send_frame(socket.get(), FrameType::kHello, hello, -1, "server", in(seconds(5))));
  const auto answer = receive_frame(socket.get(), "server", in(seconds(5)));
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_EQ(answer->type, FrameType::kRefusal);
  WireReader reader(answer->body);
  EXPECT_EQ(static_cast<FailureKind>(reader.get<std::uint32_t>()), FailureKind::kVersionMismatch);
  const std::string text = reader.text();
  EXPECT_NE(text.find("version 99"), std::string::npos) << text;
  EXPECT_NE(text.find("version " + std::to_string(kProtocolVersion)), std::string::npos) << text;
  expect_server_goes_on();
}

TEST_F(RawClient, AGreetingCutShortIsHungUpOn) {
  const std::string hello = WireWriter().put(std::uint64_t{0x5054524553534554}).put(kProtocolVersion).put(1).take();
  ASSERT_TRUE(send_frame(socket.get(), FrameType::kHello, hello, -1, "server", in(seconds(5))));
  EXPECT_FALSE(receive_frame(socket.get(), "server", in(seconds(5))));
  expect_server_goes_on();
}

TEST_F(RawClient, AFrameOfEndlessLengthIsHungUpOn) {
  send(WireWriter().put(FrameType::kHello).put(~std::uint32_t{0}).take() + std::string(100, 'x'));
  EXPECT_FALSE(receive_frame(socket.get(), "server", in(seconds(5))));
  expect_server_goes_on();
}

TEST(Handles, AreBytesThatAnswerForThemselves) {
  const RegionHandle handle{0x1234, 5, MemoryKind::kHost, 4096};
  const std::string bytes = handle.serialise();
  EXPECT_EQ(bytes.size(), 32U);
  const auto parsed = RegionHandle::parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->device, handle.device);
  EXPECT_EQ(parsed->region, handle.region);
  EXPECT_EQ(parsed->bytes, handle.bytes);
  EXPECT_EQ(RegionHandle::parse(bytes.substr(1)).error().kind, FailureKind::kProtocol);
  EXPECT_EQ(RegionHandle::parse(bytes.substr(0, 31)).error().kind, FailureKind::kProtocol);
  EXPECT_EQ(RegionHandle::parse(bytes + "x").error().kind, FailureKind::kProtocol);
  std::string other = bytes;
  other[4] = 9;
  EXPECT_EQ(RegionHandle::parse(other).error().kind, FailureKind::kVersionMismatch);
}

TEST(Memory, WhatCannotBeHadIsAFailureWithAdvice) {
  const auto device = open(named("device"));
  EXPECT_EQ(device->allocate(0).error().kind, FailureKind::kInvalidArgument);
  EXPECT_EQ(device->allocate(std::size_t{1} << 50).error().kind, FailureKind::kInvalidArgument);
  RegionOptions cuda;
  cuda.kind = MemoryKind::kCuda;
  EXPECT_EQ(device->allocate(4096, cuda).error().kind, FailureKind::kUnavailable);
  RegionOptions huge;
  huge.name = "huge";
  huge.huge_pages = HugePages::kReserved;
  const auto refused = device->allocate(std::size_t{1} << 45, huge);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, FailureKind::kOutOfMemory);
  EXPECT_NE(refused.error().message.find("vm.nr_hugepages"), std::string::npos) << refused.error().message;
}

TEST(Channels, EndWithTheirDeviceAndOutliveIt) {
  auto first = open(named("first"));
  auto second = open(named("second"));
  const auto here = *first->connect(second->address(), in(seconds(5)));
  const auto there = *second->accept(in(seconds(5)));
  first.reset();
  EXPECT_TRUE(second->wait([&] { return there->failed(); }, in(seconds(2))));
  EXPECT_EQ(there->failure()->kind, FailureKind::kPeerClosed);
  EXPECT_EQ(there->failure()->peer, "first");
  EXPECT_EQ(here->failure()->kind, FailureKind::kPeerClosed);
  Completion completion;
  EXPECT_FALSE(here->flush(completion));
}

TEST(Channels, CanBeClosedAndMadeAnew) {
  const auto first = open(named("first"));
  const auto second = open(named("second"));
  for (int i = 0; i < 3; ++i) {
    const auto here = *first->connect(second->address(), in(seconds(5)));
    const auto there = *second->accept(in(seconds(5)));
    here->close();
    EXPECT_TRUE(first->wait([&] { return here->failed(); }, in(seconds(2))));
    EXPECT_TRUE(second->wait([&] { return there->failed(); }, in(seconds(2))));
    EXPECT_EQ(there->failure()->kind, FailureKind::kPeerClosed);
  }
}

}  // namespace
}  // namespace tesser::transport::testing
