// The data connection of the TCP path, with a peer that is played by hand: what it sends is placed where it may be, and
// nowhere else.

#include <algorithm>
#include <random>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "peer_group.h"
#include "transport/announcement.h"
#include "transport/handshake.h"
#include "transport/notification_queue.h"
#include "transport/signal_area.h"
#include "transport/socket.h"
#include "transport/tcp_message.h"
#include "transport/wire.h"

namespace tesser::transport::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kBytes = 40'000;
constexpr std::uint32_t kTcpAllowed = 4;

std::string text(const std::byte* data, std::size_t bytes) { return {reinterpret_cast<const char*>(data), bytes}; }

class DataConnection : public ::testing::Test {
 protected:
  DataConnection() {
    DeviceOptions options;
    options.name = "server";
    server_ = std::move(*Device::open(options));
    region_ = *server_->allocate(kBytes);
  }

  // A new connection; the one before stays as it is.
  void connect() {
    const HostPort place = *parse_host_port(server_->address().substr(0, server_->address().find('/')));
    const Deadline deadline = in(seconds(5));
    const std::uint64_t token = ++last_token_;
    control_ = std::move(*connect_tcp(place, deadline));
    const std::string hello = WireWriter()
                                  .put(std::uint64_t{0x5054524553534554})
                                  .put(kProtocolVersion)
                                  .put(std::uint64_t{0})
                                  .put(std::uint32_t{0})
                                  .put(std::uint64_t{77} + token)
                                  .put(std::uint64_t{0})
                                  .put(token)
                                  .text("hand")
                                  .text("another machine")
                                  .text("")
                                  .put(kTcpAllowed)
                                  .take();
    ASSERT_TRUE(send_frame(control_.get(), FrameType::kHello, hello, -1, "server", deadline));
    ASSERT_EQ(receive_frame(control_.get(), "server", deadline)->type, FrameType::kHello);
    const std::string decision = WireWriter().put(static_cast<std::uint32_t>(Path::kTcp)).text("by hand").take();
    ASSERT_TRUE(send_frame(control_.get(), FrameType::kDecision, decision, -1, "server", deadline));
    data_ = std::move(*connect_tcp(place, deadline));
    ASSERT_TRUE(send_frame(data_.get(), FrameType::kAttach, WireWriter().put(token).take(), -1, "server", deadline));
    const std::string signals = WireWriter()
                                    .put(std::uint32_t{0})
                                    .put(MemoryKind::kHost)
                                    .put(std::uint64_t{DeviceOptions().signal_bytes})
                                    .put(std::uint64_t{0})
                                    .text("signals")
                                    .text("")
                                    .take();
    ASSERT_TRUE(send_frame(control_.get(), FrameType::kRegion, signals, -1, "server", deadline));
    auto accepted = server_->accept(deadline);
    ASSERT_TRUE(accepted) << accepted.error().message;
    channel_ = *accepted;
    EXPECT_EQ(channel_->path().name, "TCP");
  }

  void send(const std::string& bytes) {
    ASSERT_EQ(::send(data_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void send(const TcpMessage& message, const std::string& payload = "") { send(message.serialise() + payload); }
  // What comes back on the data connection; shorter when it ends or nothing comes.
  std::string receive(std::size_t bytes) {
    std::string all(bytes, '\0');
    std::size_t got = 0;
    const timeval patience{5, 0};
    ::setsockopt(data_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    while (got < bytes) {
      pollfd entry{data_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 5000) <= 0) {
        break;
      }
      const ssize_t now = ::recv(data_.get(), all.data() + got, bytes - got, 0);
      if (now <= 0) {
        break;
      }
      got += static_cast<std::size_t>(now);
    }
    return all.substr(0, got);
  }
  std::string read_back(const Strided& layout) {
    send(TcpMessage{TcpKind::kReadRequest, 5, region_->handle().region, 0, layout});
    const std::string head =
        TcpMessage{TcpKind::kReadReply, 5, 0, 0, Strided::contiguous(0, layout.bytes())}.serialise();
    EXPECT_EQ(receive(head.size()), head);
    return receive(layout.bytes());
  }
  TcpMessage to_region(const Strided& layout) const {
    return TcpMessage{TcpKind::kWrite, 0, region_->handle().region, 0, layout};
  }
  bool region_is_untouched() const {
    return std::all_of(region_->span().begin(), region_->span().end(), [](std::byte b) { return b == std::byte{0}; });
  }
  void expect_failure(FailureKind kind) {
    EXPECT_TRUE(server_->wait([&] { return channel_->failed(); }, in(seconds(5))));
    EXPECT_EQ(failure_kind_name(channel_->failure()->kind), failure_kind_name(kind)) << channel_->failure()->message;
    EXPECT_EQ(channel_->failure()->peer, "hand");
  }

  std::unique_ptr<Device> server_;
  std::shared_ptr<MemoryRegion> region_;
  std::shared_ptr<Channel> channel_;
  Descriptor control_;
  Descriptor data_;
  std::uint64_t last_token_ = 0;
};

TEST_F(DataConnection, WritesAreRightHoweverTheyAreCutUp) {
  connect();
  const std::string payload = "0123456789abcdefghijklmnopqrstuvwxyzABCD";
  const Strided layout{100, 5, {{2, 1000}, {4, 50}}};
  const std::string whole = to_region(layout).serialise() + payload;
  for (const char byte : whole) {
    send(std::string(1, byte));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(read_back(layout), payload);
  EXPECT_EQ(text(region_->data() + 100, 5), "01234");
  EXPECT_EQ(text(region_->data() + 150, 5), "56789");
  EXPECT_EQ(text(region_->data() + 1250, 5), "zABCD");
  // And many at once.
  std::string many;
  for (int i = 0; i < 500; ++i) {
    many += to_region(Strided::contiguous(i * 7, 7)).serialise() + std::string(7, static_cast<char>('a' + i % 26));
  }
  send(many);
  const std::string all = read_back(Strided::contiguous(0, 3500));
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(all.substr(i * 7, 7), std::string(7, static_cast<char>('a' + i % 26)));
  }
  EXPECT_FALSE(channel_->failed());
}

TEST_F(DataConnection, WhatCannotBeRightIsAProtocolFailureAndTouchesNothing) {
  const std::uint32_t id = region_->handle().region;
  const auto message = [](TcpKind kind, std::uint32_t region, const Strided& layout) {
    return TcpMessage{kind, 0, region, 0, layout}.serialise();
  };
  const auto write = [&](std::uint32_t region, const Strided& layout) {
    return message(TcpKind::kWrite, region, layout);
  };
  const auto read = [&](const Strided& layout) { return message(TcpKind::kReadRequest, id, layout); };
  std::string nine_axes = write(id, Strided::contiguous(0, 8));
  nine_axes[4] = 9;
  const std::vector<std::pair<std::string, std::string>> bad{
      {"kind 0", message(TcpKind{0}, id, Strided::contiguous(0, 8))},
      {"kind 4", message(TcpKind{4}, id, Strided::contiguous(0, 8))},
      {"text", "GET / HTTP/1.1\r\nHost: server\r\nAccept: everything\r\n\r\n"},
      {"nine axes", nine_axes},
      {"a region that is not there", write(id + 1, Strided::contiguous(0, 8))},
      {"one byte past the end", write(id, Strided::contiguous(kBytes - 7, 8))},
      {"far past the end", write(id, Strided::contiguous(std::uint64_t{1} << 40, 8))},
      {"an offset that wraps around", write(id, Strided::contiguous(~std::uint64_t{0} - 3, 8))},
      {"a size that wraps around", write(id, Strided::contiguous(8, ~std::uint64_t{0} - 3))},
      {"runs past the end", write(id, Strided{0, 8, {{3, 20'000}}})},
      {"a pitch that wraps around", write(id, Strided{64, 8, {{2, ~std::uint64_t{0} - 31}}})},
      {"counts that wrap around", write(id, Strided{0, 8, {{std::uint64_t{1} << 33, 0}, {std::uint64_t{1} << 33, 0}}})},
      {"an axis of nothing", write(id, Strided{0, 8, {{0, 8}}})},
      {"the doorbell", write(0, Strided::contiguous(0, 8))},
      {"a signal word", write(0, Strided::contiguous(4096, 8))},
      {"the signal area by runs", write(0, Strided{4096, 8, {{2, 64}}})},
      {"a read past the end", read(Strided::contiguous(1, kBytes))},
      {"a read of runs past the end", read(Strided{0, 8, {{2, kBytes}}})},
      {"an answer to nothing", message(TcpKind::kReadReply, 0, Strided::contiguous(0, 8))},
  };
  for (const auto& [what, bytes] : bad) {
    SCOPED_TRACE(what);
    connect();
    send(bytes + std::string(64, 'x'));
    expect_failure(FailureKind::kProtocol);
    // It is told why.
    auto farewell = receive_frame(control_.get(), "server", in(seconds(5)));
    while (farewell && farewell->type != FrameType::kFarewell) {
      farewell = receive_frame(control_.get(), "server", in(seconds(5)));
    }
    ASSERT_TRUE(farewell) << farewell.error().message;
    WireReader reader(farewell->body);
    EXPECT_EQ(static_cast<FailureKind>(reader.get<std::uint32_t>()), FailureKind::kProtocol);
  }
  EXPECT_TRUE(region_is_untouched());
  connect();  // the device goes on
  send(to_region(Strided::contiguous(0, 2)), "ok");
  EXPECT_EQ(read_back(Strided::contiguous(0, 2)), "ok");
}

TEST_F(DataConnection, AWriteForATransferThatIsOverTouchesNothing) {
  connect();
  const std::string payload(20'000, 'x');
  TcpMessage late = to_region(Strided::contiguous(0, payload.size()));
  late.signal = 4096;
  late.value = (std::uint64_t{1} << 32) + 1;
  send(late, payload);
  send(to_region(Strided::contiguous(30'000, 2)), "ok");
  EXPECT_EQ(read_back(Strided::contiguous(30'000, 2)), "ok");
  EXPECT_EQ(text(region_->data(), payload.size()), std::string(payload.size(), '\0'));
  EXPECT_FALSE(channel_->failed());
}

// The words as they are on the wire, and all kinds of words that are not the next one.
TEST_F(DataConnection, AQueueTakesTheNextWordAndNoOther) {
  connect();
  auto reader = NotificationReader::open(channel_, "q", 4, 0);
  ASSERT_TRUE(reader) << reader.error().message;
  auto frame = receive_frame(control_.get(), "server", in(seconds(5)));
  while (frame && frame->type != FrameType::kAnnouncement) {
    frame = receive_frame(control_.get(), "server", in(seconds(5)));
  }
  ASSERT_TRUE(frame);
  const auto announced = Announcement::parse(frame->body, "server");
  ASSERT_TRUE(announced) << announced.error().message;
  EXPECT_EQ(announced->role, Role::kNotificationReader);
  EXPECT_EQ(announced->ring_words, 4U);
  const auto notify = [&](std::uint64_t nonce, std::uint64_t lap, std::uint64_t number, std::uint32_t offset) {
    send(TcpMessage{TcpKind::kWrite, nonce << 32 | lap << 22 | number, 0, announced->signal + offset, {}});
    read_back(Strided::contiguous(0, 1));  // until it is handled
  };
  const auto poll = [&]() -> std::string {
    const auto polled = reader->poll();
    EXPECT_EQ(reader->ready(), false);
    return !polled ? "failure" : *polled ? std::to_string(**polled) : "nothing";
  };
  const std::uint64_t nonce = announced->nonce;
  notify(nonce ^ 1, 0, 7, 0);  // of another queue or run
  notify(0, 0, 7, 0);
  notify(nonce, 0, 7, 4);   // no word
  notify(nonce, 0, 7, 32);  // behind the ring
  EXPECT_EQ(poll(), "nothing");
  notify(nonce, 0, 7, 0);
  EXPECT_TRUE(reader->ready());
  EXPECT_EQ(poll(), "7");
  notify(nonce, 0, 7, 0);  // once more
  EXPECT_EQ(poll(), "nothing");
  notify(nonce, 0, 9, 16);  // the one after the next
  EXPECT_EQ(poll(), "nothing");
  notify(nonce, 0, NotificationWriter::kMaxNumber - 1, 8);
  EXPECT_EQ(reader->poll().value(), NotificationWriter::kMaxNumber - 1);
  EXPECT_EQ(poll(), "9");
  notify(nonce, 0, 3, 24);
  EXPECT_EQ(poll(), "3");
  notify(nonce, 0, 8, 0);  // again of the first lap
  EXPECT_EQ(poll(), "nothing");
  // Payload is never placed in the ring, and none is placed for a word that nobody expects.
  TcpMessage late = to_region(Strided::contiguous(100, 2));
  late.signal = announced->signal + 32;
  late.value = nonce << 32 | 1 << 22;
  send(late, "no");
  EXPECT_EQ(read_back(Strided::contiguous(100, 2)), std::string(2, '\0'));
  late.signal = announced->signal;
  late.value |= 5;
  send(late, "ok");
  EXPECT_EQ(read_back(Strided::contiguous(100, 2)), "ok");
  EXPECT_EQ(poll(), "5");
  notify(nonce, 3, 5, 8);  // laps that cannot be
  EXPECT_EQ(poll(), "failure");
  EXPECT_FALSE(channel_->failed());
  send(TcpMessage{TcpKind::kWrite, 0, 0, 0, Strided::contiguous(announced->signal, 8)}, std::string(8, 'x'));
  expect_failure(FailureKind::kProtocol);
}

TEST_F(DataConnection, AWriterRefusesARingOutsideTheSignalAreaOfItsReader) {
  const auto bytes = static_cast<std::uint32_t>(DeviceOptions().signal_bytes);
  struct Ring {
    std::uint32_t signal;
    std::uint32_t words;
    bool good;
  };
  for (const Ring& ring :
       {Ring{bytes - 64, 8, true}, Ring{bytes - 64, 16, false}, Ring{bytes, 1, false}, Ring{64, 0, false},
        Ring{64, 3, false}, Ring{72, 8, false}, Ring{64, 1U << 31, false}, Ring{0xFFFF'FFC0, 8, false}}) {
    SCOPED_TRACE(std::to_string(ring.signal) + ", " + std::to_string(ring.words));
    connect();
    auto writer = NotificationWriter::open(channel_, "q");
    ASSERT_TRUE(writer);
    Announcement announcement;
    announcement.role = Role::kNotificationReader;
    announcement.name = "q";
    announcement.nonce = 9;
    announcement.signal = ring.signal;
    announcement.ring_words = ring.words;
    announcement.first_sequence = 6;
    ASSERT_TRUE(
        send_frame(control_.get(), FrameType::kAnnouncement, announcement.serialise(), -1, "server", in(seconds(5))));
    Outcome<bool> connected = false;
    EXPECT_TRUE(server_->wait([&] { return !(connected = writer->connected()) || *connected; }, in(seconds(5))));
    EXPECT_EQ(connected.has_value(), ring.good);
    EXPECT_EQ(writer->notify(5).has_value(), ring.good);
    if (ring.good) {
      const std::string word =
          TcpMessage{TcpKind::kWrite, std::uint64_t{9} << 32 | 5, 0, ring.signal + 48, {}}.serialise();
      EXPECT_EQ(receive(word.size()), word);
    }
  }
}

TEST_F(DataConnection, AnEndInTheMiddleOfATensorIsTheEndOfThePeer) {
  connect();
  send(to_region(Strided::contiguous(0, 20'000)), std::string(10'000, 'x'));
  control_ = Descriptor();
  data_ = Descriptor();
  expect_failure(FailureKind::kPeerDied);
}

TEST_F(DataConnection, ABrokenDataConnectionAloneIsALinkThatIsDown) {
  connect();
  data_ = Descriptor();
  expect_failure(FailureKind::kLinkDown);
}

// Messages with a few bytes changed end in a failure or go where they may; the sanitizers see the rest.
TEST_F(DataConnection, ChangedMessagesDoNoHarm) {
  std::mt19937 random(5);
  const int connections = kUnderSanitizer ? 60 : 200;
  for (int i = 0; i < connections; ++i) {
    connect();
    std::string stream;
    for (int message = 0; message < 4; ++message) {
      const Strided layout{random() % 1000, 1 + random() % 300, {{1 + random() % 5, random() % 3000}}};
      TcpMessage next = random() % 3 == 0
                            ? TcpMessage{TcpKind::kReadRequest, random(), region_->handle().region, 0, layout}
                            : to_region(layout);
      stream += next.serialise() + std::string(next.kind == TcpKind::kWrite ? layout.bytes() : 0, 'x');
    }
    for (int change = 0; change < 3; ++change) {
      stream[random() % std::min<std::size_t>(stream.size(), 60)] = static_cast<char>(random());
    }
    send(stream);
    ::shutdown(data_.get(), SHUT_WR);
    EXPECT_TRUE(server_->wait([&] { return channel_->failed(); }, in(seconds(5))));
  }
  connect();
  send(to_region(Strided::contiguous(0, 2)), "ok");
  EXPECT_EQ(read_back(Strided::contiguous(0, 2)), "ok");
}

TEST_F(DataConnection, OneThatNobodyExpectsIsHungUpOn) {
  const HostPort place = *parse_host_port(server_->address().substr(0, server_->address().find('/')));
  data_ = std::move(*connect_tcp(place, in(seconds(5))));
  ASSERT_TRUE(send_frame(data_.get(), FrameType::kAttach, WireWriter().put(std::uint64_t{99}).take(), -1, "server",
                         in(seconds(5))));
  EXPECT_EQ(receive(1), "");
  connect();
  EXPECT_EQ(read_back(Strided::contiguous(0, 3)), std::string(3, '\0'));
}

TEST(TcpMessages, AreReadAsTheyWereWritten) {
  const TcpMessage message{TcpKind::kWrite, 0x1234'5678'9abc'def0, 7, 64, Strided{5, 6, {{7, 8}, {9, 10}}}};
  const std::string bytes = message.serialise();
  EXPECT_EQ(bytes.size(), TcpMessage::kFixedBytes + 32);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto part = TcpMessage::parse(std::string_view(bytes).substr(0, size));
    ASSERT_TRUE(part);
    EXPECT_EQ(part->used, 0U) << size;
  }
  const auto parsed = TcpMessage::parse(bytes + "more");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->used, bytes.size());
  EXPECT_EQ(parsed->message.serialise(), bytes);
}

}  // namespace
}  // namespace tesser::transport::testing
