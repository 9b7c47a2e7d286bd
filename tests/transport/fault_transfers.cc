#include "fault_transfers.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

#include "transport/dynamic_transfer.h"
#include "transport/static_transfer.h"

namespace tesser::transport::testing {
namespace {

constexpr std::chrono::seconds kNothingHappens{60};
constexpr std::uint64_t kLast = std::uint64_t{1} << 63;

std::uint64_t word_of(std::uint64_t mark, std::uint64_t i) { return mark ^ (i * 0x9E3779B97F4A7C15ULL); }

void fill(std::byte* data, std::uint64_t bytes, std::uint64_t mark) {
  auto* words = reinterpret_cast<std::uint64_t*>(data);
  for (std::uint64_t i = 0; i < bytes / 8; ++i) {
    words[i] = word_of(mark, i);
  }
}

// Whether the tensor is whole and the one after `round - 1`; sets whether it is the last.
bool is_round(const std::byte* data, std::uint64_t bytes, std::uint64_t round, bool& last) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(data);
  const std::uint64_t mark = words[0];
  last = (mark & kLast) != 0;
  for (std::uint64_t i = 0; i < bytes / 8; ++i) {
    if (words[i] != word_of(mark, i)) {
      return false;
    }
  }
  return (mark & ~kLast) == round;
}

// One side: its region, its round, and how it ended.
class Side {
 public:
  Side(Device& device, std::shared_ptr<Channel> channel, Progress progress, std::uint64_t bytes)
      : device_(device),
        channel_(std::move(channel)),
        progress_(progress),
        bytes_(bytes),
        place_(Strided::contiguous(0, bytes)),
        type_{DType::kUInt8, {static_cast<std::int64_t>(bytes)}},
        region_(*device.allocate(bytes)) {}

  std::optional<Failure> run(Role role, Kind kind) {
    if (role == Role::kSender) {
      kind == Kind::kStatic ? send_static() : send_dynamic();
    } else {
      kind == Kind::kStatic ? receive_static() : receive_dynamic();
    }
    // The completion lives here, and an operation in flight may not outlive the bound.
    EXPECT_TRUE(device_.wait([&] { return completion_.done(); }, in(kFailureBound)));
    return std::move(failure_);
  }

 private:
  // Waits until `question` is true or fails; whether it is true.
  template <typename Question>
  bool ask(const Question& question) {
    const bool in_time = device_.wait(
        [&] {
          const auto answer = question();
          if (!answer) {
            failure_ = answer.error();
            return true;
          }
          return static_cast<bool>(*answer);
        },
        in(kNothingHappens));
    if (!in_time) {
      failure_ = Failure{FailureKind::kTimeout, "", "nothing happened in a minute"};
    }
    return !failure_;
  }

  bool completed() {
    return ask([&]() -> Outcome<bool> {
      if (!completion_.done()) {
        return false;
      }
      TESSER_TRANSPORT_RETURN_IF_FAILED(completion_.outcome());
      return true;
    });
  }

  void make_next() {
    last_ = progress_.finish().load() != 0;
    fill(region_->data(), bytes_, ++round_ | (last_ ? kLast : 0));
    progress_.transferred().fetch_add(1);
  }

  void check_next() {
    EXPECT_TRUE(is_round(region_->data(), bytes_, ++round_, last_)) << "tensor " << round_ << " is not the one sent";
    progress_.transferred().fetch_add(1);
  }

  void send_static() {
    auto sender = StaticSender::open(channel_, "t", type_);
    if (!sender) {
      failure_ = sender.error();
      return;
    }
    do {
      make_next();
    } while (ask([&] { return sender->try_send(*region_, place_, completion_); }) && completed() && !last_);
    wait_for_the_other_side();
  }

  void receive_static() {
    auto receiver = StaticReceiver::open(channel_, "t", type_, region_, place_);
    if (!receiver) {
      failure_ = receiver.error();
      return;
    }
    do {
      receiver->grant();
      if (!ask([&] { return receiver->poll(); })) {
        return;
      }
      check_next();
    } while (!last_);
    wait_for_the_other_side();
  }

  void send_dynamic() {
    auto sender = DynamicSender::open(channel_, "t", region_);
    if (!sender) {
      failure_ = sender.error();
      return;
    }
    do {
      make_next();
    } while (ask([&] { return sender->try_send(type_.dtype, type_.shape, 0); }) &&
             ask([&] { return sender->released(); }) && !last_);
    wait_for_the_other_side();
  }

  void receive_dynamic() {
    auto receiver = DynamicReceiver::open(channel_, "t");
    if (!receiver) {
      failure_ = receiver.error();
      return;
    }
    do {
      const auto offered = [&]() -> Outcome<bool> {
        TESSER_TRANSPORT_ASSIGN(const IncomingTensor* tensor, receiver->poll());
        return tensor != nullptr;
      };
      if (!ask(offered)) {
        return;
      }
      if (const auto begun = receiver->receive(*region_, place_, completion_); !begun) {
        failure_ = begun.error();
        return;
      }
      if (!completed()) {
        return;
      }
      check_next();
      receiver->release();
    } while (!last_);
    wait_for_the_other_side();
  }

  // An end that goes first would be news for the other one.
  void wait_for_the_other_side() {
    if (failure_) {
      return;
    }
    progress_.finish().fetch_add(1);
    const Deadline end = in(std::chrono::seconds(10));
    while (progress_.finish().load() < 3 && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Device& device_;
  std::shared_ptr<Channel> channel_;
  Progress progress_;
  const std::uint64_t bytes_;
  const Strided place_;
  const TensorType type_;
  std::shared_ptr<MemoryRegion> region_;
  Completion completion_;
  std::optional<Failure> failure_;
  std::uint64_t round_ = 0;
  bool last_ = false;
};

}  // namespace

std::optional<Failure> transfer_until_failure(Device& device, const std::shared_ptr<Channel>& channel,
                                              Progress progress, Role role, Kind kind, std::uint64_t bytes) {
  return Side(device, channel, progress, bytes).run(role, kind);
}

bool wait_for_transfers(Progress progress, std::uint64_t tensors) {
  const Deadline end = in(std::chrono::seconds(30));
  while (progress.transferred().load() < tensors) {
    if (Clock::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

std::uint64_t clock_now() { return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()); }

}  // namespace tesser::transport::testing
