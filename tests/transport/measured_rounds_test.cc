// The rounds of a measurement between two threads: what is counted, and that damaged tensors are noticed.
#include "transport/measured_rounds.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::transport {
namespace {

using Message = std::vector<std::byte>;

// Messages in one direction, in order.
class Pipe {
 public:
  void put(Message message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    arrived_.notify_one();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    arrived_.notify_one();
  }
  Outcome<Message> take() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return closed_ || !messages_.empty(); });
    if (messages_.empty()) {
      return failure(FailureKind::kPeerClosed, "peer", "the peer has ended");
    }
    Message message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Message> messages_;
  bool closed_ = false;
};

using Damage = std::function<void(int send, std::size_t tensor, Message& message)>;

class PipeCarrier final : public TensorCarrier {
 public:
  PipeCarrier(Pipe& out, Pipe& in, const std::vector<std::size_t>& sizes, Damage damage = {})
      : out_(out), in_(in), damage_(std::move(damage)) {
    for (const std::size_t bytes : sizes) {
      sent_.emplace_back(bytes);
      received_.emplace_back(bytes);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      outgoing_.emplace_back(sent_[i]);
      incoming_.emplace_back(received_[i]);
    }
  }

  const std::vector<std::span<std::byte>>& outgoing() const override { return outgoing_; }
  const std::vector<std::span<const std::byte>>& incoming() const override { return incoming_; }
  Outcome<void> send() override {
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      Message message = sent_[i];
      if (damage_) {
        damage_(sends_, i, message);
      }
      out_.put(std::move(message));
    }
    ++sends_;
    return {};
  }
  Outcome<void> settle() override { return {}; }
  Outcome<void> receive() override {
    for (Message& tensor : received_) {
      TESSER_TRANSPORT_ASSIGN(const Message message, in_.take());
      std::memcpy(tensor.data(), message.data(), tensor.size());
    }
    return {};
  }
  Outcome<void> release() override { return {}; }

 private:
  Pipe& out_;
  Pipe& in_;
  Damage damage_;
  int sends_ = 0;
  std::vector<Message> sent_;
  std::vector<Message> received_;
  std::vector<std::span<std::byte>> outgoing_;
  std::vector<std::span<const std::byte>> incoming_;
};

const RoundOptions kShort{.time = std::chrono::milliseconds(5), .fewest_rounds = 3};

struct Outcomes {
  Outcome<Measurement> lead;
  Outcome<void> follow;
};

// `damage` befalls what the following side sends.
Outcomes there_and_back(const std::vector<std::size_t>& sizes, const Damage& damage = {}) {
  Pipe there;
  Pipe back;
  PipeCarrier first(there, back, sizes);
  PipeCarrier second(back, there, sizes, damage);
  Outcome<void> follow;
  std::thread thread([&] {
    follow = follow_there_and_back(second);
    back.close();
  });
  Outcome<Measurement> lead = lead_there_and_back(first, "pipe", kShort);
  there.close();
  thread.join();
  return {std::move(lead), std::move(follow)};
}

TEST(MeasuredRounds, ThereAndBackOfEverySize) {
  for (const std::size_t bytes : {8, 9, 15, 16, 17, 64, 65'535, 65'536, 65'544, 200'001}) {
    const Outcomes outcomes = there_and_back({bytes});
    ASSERT_TRUE(outcomes.lead) << bytes << ": " << outcomes.lead.error().message;
    ASSERT_TRUE(outcomes.follow) << bytes << ": " << outcomes.follow.error().message;
    EXPECT_EQ(outcomes.lead->bytes, bytes);
    EXPECT_GE(outcomes.lead->rounds, 3);
    EXPECT_GT(outcomes.lead->us_lowest, 0);
    EXPECT_LE(outcomes.lead->us_lowest, outcomes.lead->us_median);
  }
}

TEST(MeasuredRounds, AnExchangeCountsAllTensors) {
  Pipe there;
  Pipe back;
  PipeCarrier first(there, back, {64, 100'000, 8});
  PipeCarrier second(back, there, {64, 100'000, 8});
  Pipe turn_there;
  Pipe turn_back;
  PipeCarrier first_turn(turn_there, turn_back, {8});
  PipeCarrier second_turn(turn_back, turn_there, {8});
  Outcome<void> follow;
  std::thread thread([&] { follow = follow_exchange(second, second_turn); });
  const Outcome<Measurement> lead = lead_exchange(first, first_turn, "pipe", kShort);
  thread.join();
  ASSERT_TRUE(lead) << lead.error().message;
  ASSERT_TRUE(follow) << follow.error().message;
  EXPECT_EQ(lead->bytes, 64U + 100'000 + 8);
  EXPECT_EQ(lead->tensors, 3);
  EXPECT_GE(lead->rounds, 3);
}

// One wrong byte, wherever it is, is seen in the first round; one in a mark in every round.
TEST(MeasuredRounds, ADamagedTensorIsAFailure) {
  const std::size_t bytes = 200'000;
  for (const std::size_t place :
       {std::size_t{0}, std::size_t{9}, std::size_t{65'536}, std::size_t{99'999}, bytes - 1}) {
    const Outcomes outcomes = there_and_back({bytes}, [&](int send, std::size_t, Message& message) {
      if (send == 0) {
        message[place] ^= std::byte{1};
      }
    });
    ASSERT_FALSE(outcomes.lead) << place;
    EXPECT_EQ(outcomes.lead.error().kind, FailureKind::kProtocol) << place;
  }
  for (const std::size_t place : {std::size_t{0}, std::size_t{65'536}, bytes - 1}) {
    const Outcomes outcomes = there_and_back({bytes}, [&](int send, std::size_t, Message& message) {
      if (send == 2) {
        message[place] ^= std::byte{1};
      }
    });
    ASSERT_FALSE(outcomes.lead) << place;
    EXPECT_EQ(outcomes.lead.error().kind, FailureKind::kProtocol) << place;
  }
}

TEST(MeasuredRounds, ATensorOfAnotherRoundIsAFailure) {
  Message earlier;
  const Outcomes outcomes = there_and_back({1024}, [&](int send, std::size_t, Message& message) {
    if (send == 1) {
      earlier = message;
    } else if (send == 2) {
      message = earlier;
    }
  });
  ASSERT_FALSE(outcomes.lead);
  EXPECT_NE(outcomes.lead.error().message.find("round 2 was answered by round 1"), std::string::npos)
      << outcomes.lead.error().message;
}

TEST(MeasuredRounds, MemcpyIsMeasuredInTheSameWay) {
  std::vector<std::byte> memory(4 * 4096);
  const Measurement row = measure_memcpy(memory, kShort);
  EXPECT_EQ(row.system, "memcpy");
  EXPECT_EQ(row.bytes, 4096U);
  EXPECT_GE(row.rounds, 3);
}

}  // namespace
}  // namespace tesser::transport
