#include "transport/measure.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "transport/dynamic_transfer.h"
#include "transport/registered_arena.h"
#include "transport/static_transfer.h"

namespace tesser::transport {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr int kFewestRounds = 5;
constexpr int kMostRounds = 20'000;
constexpr std::uint64_t kLast = ~std::uint64_t{0};  // the round that ends a size

// Marks first and last word with the round, so that an early notification shows.
void mark(std::byte* data, std::uint64_t bytes, std::uint64_t round) {
  std::memcpy(data, &round, sizeof(round));
  std::memcpy(data + bytes - sizeof(round), &round, sizeof(round));
}

Outcome<std::uint64_t> marked(const std::byte* data, std::uint64_t bytes, const std::string& peer) {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::memcpy(&first, data, sizeof(first));
  std::memcpy(&last, data + bytes - sizeof(last), sizeof(last));
  if (first != last) {
    return failure(FailureKind::kProtocol, peer,
                   fmt::format("a tensor of {} bytes from {} arrived in part", bytes, peer));
  }
  return first;
}

// One side's two transfers, there and back.
class Side {
 public:
  virtual ~Side() = default;
  virtual Outcome<void> send(std::uint64_t round) = 0;
  virtual Outcome<std::uint64_t> receive() = 0;  // the round it carries
  virtual Outcome<void> finish() = 0;            // waits until nothing sent is in flight
};

Outcome<void> wait(Device& device, const std::string& peer, const std::function<Outcome<bool>()>& question) {
  Outcome<bool> answer = false;
  if (!device.wait([&] { return !(answer = question()) || *answer; }, in(kPatience))) {
    return failure(FailureKind::kTimeout, peer, fmt::format("{} sent nothing for {} s", peer, kPatience.count()));
  }
  if (!answer) {
    return tl::unexpected<Failure>(std::move(answer.error()));
  }
  return {};
}

class StaticSide final : public Side {
 public:
  static Outcome<std::unique_ptr<Side>> open(Device& device, const std::shared_ptr<Channel>& channel,
                                             std::uint64_t bytes, const std::string& out, const std::string& back) {
    const TensorType type{DType::kUInt8, {static_cast<std::int64_t>(bytes)}};
    TESSER_TRANSPORT_ASSIGN(auto source, device.allocate(bytes));
    TESSER_TRANSPORT_ASSIGN(auto target, device.allocate(bytes));
    TESSER_TRANSPORT_ASSIGN(StaticSender sender, StaticSender::open(channel, out, type));
    TESSER_TRANSPORT_ASSIGN(StaticReceiver receiver,
                            StaticReceiver::open(channel, back, type, target, Strided::contiguous(0, bytes)));
    std::memset(source->data(), 1, bytes);
    receiver.grant();
    return std::unique_ptr<Side>(new StaticSide(device, channel->peer(), std::move(source), std::move(target),
                                                std::move(sender), std::move(receiver)));
  }

  Outcome<void> send(std::uint64_t round) override {
    TESSER_TRANSPORT_RETURN_IF_FAILED(wait(device_, peer_, [&]() -> Outcome<bool> { return completion_.done(); }));
    TESSER_TRANSPORT_RETURN_IF_FAILED(completion_.outcome());
    mark(source_->data(), source_->bytes(), round);
    const Strided place = Strided::contiguous(0, source_->bytes());
    return wait(device_, peer_, [&] { return sender_.try_send(*source_, place, completion_); });
  }
  Outcome<std::uint64_t> receive() override {
    TESSER_TRANSPORT_RETURN_IF_FAILED(wait(device_, peer_, [&] { return receiver_.poll(); }));
    TESSER_TRANSPORT_ASSIGN(const std::uint64_t round, marked(target_->data(), target_->bytes(), peer_));
    receiver_.grant();
    return round;
  }
  Outcome<void> finish() override {
    return wait(device_, peer_, [&]() -> Outcome<bool> { return completion_.done(); });
  }

 private:
  StaticSide(Device& device, std::string peer, std::shared_ptr<MemoryRegion> source,
             std::shared_ptr<MemoryRegion> target, StaticSender sender, StaticReceiver receiver)
      : device_(device),
        peer_(std::move(peer)),
        source_(std::move(source)),
        target_(std::move(target)),
        sender_(std::move(sender)),
        receiver_(std::move(receiver)) {}

  Device& device_;
  std::string peer_;
  std::shared_ptr<MemoryRegion> source_;
  std::shared_ptr<MemoryRegion> target_;
  Completion completion_;
  StaticSender sender_;
  StaticReceiver receiver_;
};

class DynamicSide final : public Side {
 public:
  static Outcome<std::unique_ptr<Side>> open(Device& device, const std::shared_ptr<Channel>& channel,
                                             std::uint64_t bytes, const std::string& out, const std::string& back) {
    TESSER_TRANSPORT_ASSIGN(auto source, device.allocate(bytes));
    TESSER_TRANSPORT_ASSIGN(auto target, device.allocate(bytes + 4096));
    TESSER_TRANSPORT_ASSIGN(DynamicSender sender, DynamicSender::open(channel, out, source));
    TESSER_TRANSPORT_ASSIGN(DynamicReceiver receiver, DynamicReceiver::open(channel, back));
    std::memset(source->data(), 1, bytes);
    return std::unique_ptr<Side>(new DynamicSide(device, channel->peer(), std::move(source), std::move(target),
                                                 std::move(sender), std::move(receiver)));
  }

  Outcome<void> send(std::uint64_t round) override {
    TESSER_TRANSPORT_RETURN_IF_FAILED(wait(device_, peer_, [&] { return sender_.can_send(); }));
    mark(source_->data(), source_->bytes(), round);
    const Shape shape{static_cast<std::int64_t>(source_->bytes())};
    return wait(device_, peer_, [&] { return sender_.try_send(DType::kUInt8, shape, 0); });
  }
  Outcome<std::uint64_t> receive() override {
    const IncomingTensor* tensor = nullptr;
    TESSER_TRANSPORT_RETURN_IF_FAILED(wait(device_, peer_, [&]() -> Outcome<bool> {
      TESSER_TRANSPORT_ASSIGN(tensor, receiver_.poll());
      return tensor != nullptr;
    }));
    TESSER_TRANSPORT_ASSIGN(const std::uint64_t offset, receiver_.receive(arena_, completion_));
    TESSER_TRANSPORT_RETURN_IF_FAILED(wait(device_, peer_, [&]() -> Outcome<bool> { return completion_.done(); }));
    TESSER_TRANSPORT_RETURN_IF_FAILED(completion_.outcome());
    auto round = marked(arena_.at(offset), tensor->bytes, peer_);
    receiver_.release();
    arena_.free(offset);
    return round;
  }
  Outcome<void> finish() override {
    return wait(device_, peer_, [&] { return sender_.released(); });
  }

 private:
  DynamicSide(Device& device, std::string peer, std::shared_ptr<MemoryRegion> source,
              std::shared_ptr<MemoryRegion> target, DynamicSender sender, DynamicReceiver receiver)
      : device_(device),
        peer_(std::move(peer)),
        source_(std::move(source)),
        arena_(std::move(target)),
        sender_(std::move(sender)),
        receiver_(std::move(receiver)) {}

  Device& device_;
  std::string peer_;
  std::shared_ptr<MemoryRegion> source_;
  RegisteredArena arena_;
  Completion completion_;
  DynamicSender sender_;
  DynamicReceiver receiver_;
};

Measurement summarise(const std::string& system, std::uint64_t bytes, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  return {system, bytes, us[us.size() / 2], us.front(), static_cast<int>(us.size())};
}

// Whether another round is worth its time; the first one warms pages and caches and does not count.
bool goes_on(std::size_t rounds, Deadline end) {
  return rounds < kFewestRounds || (rounds < kMostRounds && Clock::now() < end);
}

double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

}  // namespace

std::vector<std::uint64_t> default_sizes() {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = 64; bytes <= std::uint64_t{256} << 20; bytes *= 4) {
    sizes.push_back(bytes);
  }
  return sizes;
}

Outcome<std::vector<Measurement>> measure_transfers(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                                                    MeasuredTransfer transfer, const std::string& system,
                                                    const MeasureOptions& options) {
  std::vector<Measurement> measurements;
  for (const std::uint64_t bytes : options.sizes) {
    if (bytes < sizeof(std::uint64_t)) {
      return failure(FailureKind::kInvalidArgument, "", "the smallest size that can be measured is 8 bytes");
    }
    const std::string there = fmt::format("{} {} there", system, bytes);
    const std::string back = fmt::format("{} {} back", system, bytes);
    const auto open = transfer == MeasuredTransfer::kStatic ? &StaticSide::open : &DynamicSide::open;
    TESSER_TRANSPORT_ASSIGN(const std::unique_ptr<Side> side,
                            open(device, channel, bytes, first ? there : back, first ? back : there));
    if (!first) {
      for (std::uint64_t round = 0; round != kLast;) {
        TESSER_TRANSPORT_ASSIGN(round, side->receive());
        TESSER_TRANSPORT_RETURN_IF_FAILED(side->send(round));
      }
      // The peer is done with this side's buffers once it says so in its turn.
      TESSER_TRANSPORT_RETURN_IF_FAILED(side->receive());
      TESSER_TRANSPORT_RETURN_IF_FAILED(side->finish());
      continue;
    }
    std::vector<double> us;
    const Deadline end = in(options.time_per_size);
    for (std::uint64_t round = 0; round == 0 || goes_on(us.size(), end); ++round) {
      const Deadline begin = Clock::now();
      TESSER_TRANSPORT_RETURN_IF_FAILED(side->send(round));
      TESSER_TRANSPORT_ASSIGN(const std::uint64_t answer, side->receive());
      if (answer != round) {
        return failure(FailureKind::kProtocol, channel->peer(),
                       fmt::format("round {} was answered by {}", round, answer));
      }
      if (round != 0) {
        us.push_back(microseconds(Clock::now() - begin) / 2);
      }
    }
    TESSER_TRANSPORT_RETURN_IF_FAILED(side->send(kLast));
    TESSER_TRANSPORT_RETURN_IF_FAILED(side->receive());
    TESSER_TRANSPORT_RETURN_IF_FAILED(side->send(kLast));
    TESSER_TRANSPORT_RETURN_IF_FAILED(side->finish());
    measurements.push_back(summarise(system, bytes, std::move(us)));
  }
  return measurements;
}

std::vector<Measurement> measure_memcpy(const MeasureOptions& options) {
  std::vector<Measurement> measurements;
  for (const std::uint64_t bytes : options.sizes) {
    // There and back between two pairs of buffers, as the transfers do it.
    std::vector<std::byte> memory(4 * bytes, std::byte{1});
    std::byte* source[] = {memory.data(), memory.data() + bytes};
    std::byte* target[] = {memory.data() + 2 * bytes, memory.data() + 3 * bytes};
    std::vector<double> us;
    const Deadline end = in(options.time_per_size);
    std::uint64_t seen = 0;
    for (std::uint64_t round = 0; round == 0 || goes_on(us.size(), end); ++round) {
      const Deadline begin = Clock::now();
      for (int way = 0; way < 2; ++way) {
        mark(source[way], bytes, round);
        std::memcpy(target[way], source[way], bytes);
        seen += marked(target[way], bytes, "").value_or(kLast);
      }
      if (round != 0) {
        us.push_back(microseconds(Clock::now() - begin) / 2);
      }
    }
    if (seen != kLast) {  // keeps the copies from being left out
      measurements.push_back(summarise("memcpy", bytes, std::move(us)));
    }
  }
  return measurements;
}

}  // namespace tesser::transport
