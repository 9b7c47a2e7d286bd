#include "transport/measure.h"

#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "transport/dynamic_transfer.h"
#include "transport/registered_arena.h"
#include "transport/static_transfer.h"

namespace tesser::transport {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kFewestBytes = sizeof(std::uint64_t);
const RegionOptions kMemory{.name = "tensors to measure", .huge_pages = HugePages::kTransparent};

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

// Which of a set's tensors are still to be dealt with.
class Pending {
 public:
  void fill(std::size_t tensors) {
    indices_.resize(tensors);
    std::iota(indices_.begin(), indices_.end(), std::size_t{0});
  }

  // Asks for each, and drops those that are done; true when none is left.
  template <typename Done>
  Outcome<bool> advance(const Done& done) {
    std::size_t left = 0;
    for (const std::size_t index : indices_) {
      TESSER_TRANSPORT_ASSIGN(const bool over, done(index));
      if (!over) {
        indices_[left++] = index;
      }
    }
    indices_.resize(left);
    return left == 0;
  }

 private:
  std::vector<std::size_t> indices_;
};

// Both ends of a set of transfers, and the memory its tensors are sent from.
class TransferSet : public TensorCarrier {
 public:
  const std::vector<std::span<std::byte>>& outgoing() const final { return outgoing_; }
  const std::vector<std::span<const std::byte>>& incoming() const final { return incoming_; }

  // Whenever this one sends more, the other one does so too.
  void send_also(TransferSet& other) { other_ = &other; }
  Outcome<void> send() final {
    unsent_.fill(outgoing_.size());
    TESSER_TRANSPORT_RETURN_IF_FAILED(send_more());
    return {};
  }
  Outcome<void> settle() final {
    return wait(device_, peer_, [this]() -> Outcome<bool> {
      TESSER_TRANSPORT_ASSIGN(const bool sent, send_more());
      return sent ? settled() : Outcome<bool>(false);
    });
  }
  Outcome<void> receive() final {
    return wait(device_, peer_, [this]() -> Outcome<bool> {
      TESSER_TRANSPORT_ASSIGN(const bool sent, send_more());
      TESSER_TRANSPORT_ASSIGN(const bool arrived,
                              awaited_.advance([this](std::size_t tensor) { return has_arrived(tensor); }));
      return sent && arrived;
    });
  }

 protected:
  TransferSet(Device& device, std::string peer, std::shared_ptr<MemoryRegion> source,
              const std::vector<std::uint64_t>& tensors)
      : device_(device), peer_(std::move(peer)), source_(std::move(source)), incoming_(tensors.size()) {
    for (std::uint64_t offset = 0; const std::uint64_t bytes : tensors) {
      outgoing_.push_back(source_->span().subspan(offset, bytes));
      offset += aligned(bytes);
    }
    awaited_.fill(tensors.size());
  }

  static std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  static std::uint64_t bytes_of(const std::vector<std::uint64_t>& tensors) {
    return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                           [](std::uint64_t sum, std::uint64_t bytes) { return sum + aligned(bytes); });
  }
  static std::string name_of(const std::string& name, std::size_t tensor) { return fmt::format("{} {}", name, tensor); }

  std::uint64_t offset_of(std::size_t tensor) const {
    return static_cast<std::uint64_t>(outgoing_[tensor].data() - source_->data());
  }
  // Sends a tensor if the peer lets it.
  virtual Outcome<bool> try_send(std::size_t tensor) = 0;
  // Whether nothing of what was sent is in use.
  virtual Outcome<bool> settled() = 0;
  // Goes on with receiving a tensor; true when it is here and stands in incoming_.
  virtual Outcome<bool> has_arrived(std::size_t tensor) = 0;

  Device& device_;
  std::string peer_;
  std::shared_ptr<MemoryRegion> source_;
  std::vector<std::span<std::byte>> outgoing_;
  std::vector<std::span<const std::byte>> incoming_;
  Pending awaited_;

 private:
  Outcome<bool> send_more() {
    if (other_ != nullptr) {
      TESSER_TRANSPORT_RETURN_IF_FAILED(other_->send_more());
    }
    return unsent_.advance([this](std::size_t tensor) { return try_send(tensor); });
  }

  Pending unsent_;
  TransferSet* other_ = nullptr;
};

class StaticSet final : public TransferSet {
 public:
  static Outcome<std::unique_ptr<TransferSet>> open(Device& device, const std::shared_ptr<Channel>& channel,
                                                    const std::vector<std::uint64_t>& tensors, const std::string& there,
                                                    const std::string& back) {
    TESSER_TRANSPORT_ASSIGN(auto source, device.allocate(bytes_of(tensors), kMemory));
    TESSER_TRANSPORT_ASSIGN(auto target, device.allocate(bytes_of(tensors), kMemory));
    std::unique_ptr<StaticSet> set(
        new StaticSet(device, channel->peer(), std::move(source), std::move(target), tensors));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const TensorType type{DType::kUInt8, {static_cast<std::int64_t>(tensors[i])}};
      const Strided place = Strided::contiguous(set->offset_of(i), tensors[i]);
      TESSER_TRANSPORT_ASSIGN(StaticSender sender, StaticSender::open(channel, name_of(there, i), type));
      TESSER_TRANSPORT_ASSIGN(StaticReceiver receiver,
                              StaticReceiver::open(channel, name_of(back, i), type, set->target_, place));
      receiver.grant();
      set->places_.push_back(place);
      set->senders_.push_back(std::move(sender));
      set->receivers_.push_back(std::move(receiver));
      set->incoming_[i] = set->target_->span().subspan(place.offset, place.run_bytes);
    }
    return set;
  }

  Outcome<void> release() override {
    for (StaticReceiver& receiver : receivers_) {
      receiver.grant();
    }
    awaited_.fill(receivers_.size());
    return {};
  }

 private:
  StaticSet(Device& device, std::string peer, std::shared_ptr<MemoryRegion> source,
            std::shared_ptr<MemoryRegion> target, const std::vector<std::uint64_t>& tensors)
      : TransferSet(device, std::move(peer), std::move(source), tensors), target_(std::move(target)) {}

  Outcome<bool> try_send(std::size_t tensor) override {
    return senders_[tensor].try_send(*source_, places_[tensor], completion_);
  }
  Outcome<bool> settled() override {
    if (!completion_.done()) {
      return false;
    }
    TESSER_TRANSPORT_RETURN_IF_FAILED(completion_.outcome());
    return true;
  }
  Outcome<bool> has_arrived(std::size_t tensor) override { return receivers_[tensor].poll(); }

  std::shared_ptr<MemoryRegion> target_;  // with the layout of the source
  std::vector<Strided> places_;
  Completion completion_;
  std::vector<StaticSender> senders_;
  std::vector<StaticReceiver> receivers_;
};

class DynamicSet final : public TransferSet {
 public:
  static Outcome<std::unique_ptr<TransferSet>> open(Device& device, const std::shared_ptr<Channel>& channel,
                                                    const std::vector<std::uint64_t>& tensors, const std::string& there,
                                                    const std::string& back) {
    TESSER_TRANSPORT_ASSIGN(auto source, device.allocate(bytes_of(tensors), kMemory));
    TESSER_TRANSPORT_ASSIGN(auto target, device.allocate(bytes_of(tensors), kMemory));
    std::unique_ptr<DynamicSet> set(
        new DynamicSet(device, channel->peer(), std::move(source), std::move(target), tensors));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      TESSER_TRANSPORT_ASSIGN(DynamicSender sender, DynamicSender::open(channel, name_of(there, i), set->source_));
      TESSER_TRANSPORT_ASSIGN(DynamicReceiver receiver, DynamicReceiver::open(channel, name_of(back, i)));
      set->shapes_.push_back({static_cast<std::int64_t>(tensors[i])});
      set->senders_.push_back(std::move(sender));
      set->arrivals_.push_back(std::make_unique<Arrival>(std::move(receiver)));
    }
    return set;
  }

  Outcome<void> release() override {
    for (const std::unique_ptr<Arrival>& arrival : arrivals_) {
      arrival->receiver.release();
      arena_.free(*arrival->offset);
      arrival->offset.reset();
    }
    awaited_.fill(arrivals_.size());
    return {};
  }

 private:
  struct Arrival {
    explicit Arrival(DynamicReceiver end) : receiver(std::move(end)) {}

    Completion completion;
    DynamicReceiver receiver;
    std::optional<std::uint64_t> offset;  // in the arena, from the begin of the read to release()
  };

  DynamicSet(Device& device, std::string peer, std::shared_ptr<MemoryRegion> source,
             std::shared_ptr<MemoryRegion> target, const std::vector<std::uint64_t>& tensors)
      : TransferSet(device, std::move(peer), std::move(source), tensors), arena_(std::move(target)) {}

  Outcome<bool> try_send(std::size_t tensor) override {
    return senders_[tensor].try_send(DType::kUInt8, shapes_[tensor], offset_of(tensor));
  }
  Outcome<bool> settled() override {
    for (DynamicSender& sender : senders_) {
      TESSER_TRANSPORT_ASSIGN(const bool released, sender.released());
      if (!released) {
        return false;
      }
    }
    return true;
  }
  Outcome<bool> has_arrived(std::size_t tensor) override {
    Arrival& arrival = *arrivals_[tensor];
    if (!arrival.offset) {
      TESSER_TRANSPORT_ASSIGN(const IncomingTensor* const offered, arrival.receiver.poll());
      if (offered == nullptr) {
        return false;
      }
      TESSER_TRANSPORT_ASSIGN(arrival.offset, arrival.receiver.receive(arena_, arrival.completion));
      incoming_[tensor] = {arena_.at(*arrival.offset), offered->bytes};
    }
    if (!arrival.completion.done()) {
      return false;
    }
    TESSER_TRANSPORT_RETURN_IF_FAILED(arrival.completion.outcome());
    return true;
  }

  RegisteredArena arena_;
  std::vector<Shape> shapes_;
  std::vector<DynamicSender> senders_;
  std::vector<std::unique_ptr<Arrival>> arrivals_;
};

Outcome<std::unique_ptr<TransferSet>> open_set(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                                               MeasuredTransfer transfer, const std::vector<std::uint64_t>& tensors,
                                               const std::string& name) {
  for (const std::uint64_t bytes : tensors) {
    if (bytes < kFewestBytes) {
      return failure(FailureKind::kInvalidArgument, "",
                     fmt::format("the smallest tensor that can be measured has {} bytes, not {}", kFewestBytes, bytes));
    }
  }
  const std::string there = name + (first ? " there" : " back");
  const std::string back = name + (first ? " back" : " there");
  const auto open = transfer == MeasuredTransfer::kStatic ? &StaticSet::open : &DynamicSet::open;
  return open(device, channel, tensors, there, back);
}

}  // namespace

std::vector<std::uint64_t> default_sizes() {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = 64; bytes <= std::uint64_t{256} << 20; bytes *= 4) {
    sizes.push_back(bytes);
  }
  return sizes;
}

Outcome<Measurement> measure_transfer(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                                      MeasuredTransfer transfer, const std::string& system, std::uint64_t bytes,
                                      const RoundOptions& options) {
  TESSER_TRANSPORT_ASSIGN(
      const std::unique_ptr<TransferSet> tensor,
      open_set(device, channel, first, transfer, {bytes}, fmt::format("{} {} bytes", system, bytes)));
  if (first) {
    return lead_there_and_back(*tensor, system, options);
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(follow_there_and_back(*tensor));
  return Measurement{system, bytes};
}

Outcome<Measurement> measure_exchange(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                                      MeasuredTransfer transfer, const std::string& system,
                                      const std::vector<std::uint64_t>& tensors, const RoundOptions& options) {
  if (tensors.empty()) {
    return failure(FailureKind::kInvalidArgument, "", "an exchange needs a tensor");
  }
  TESSER_TRANSPORT_ASSIGN(const std::unique_ptr<TransferSet> set,
                          open_set(device, channel, first, transfer, tensors, system + " set"));
  TESSER_TRANSPORT_ASSIGN(const std::unique_ptr<TransferSet> turn,
                          open_set(device, channel, first, transfer, {kFewestBytes}, system + " turn"));
  set->send_also(*turn);
  if (first) {
    return lead_exchange(*set, *turn, system, options);
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(follow_exchange(*set, *turn));
  return Measurement{system};
}

Outcome<Measurement> measure_copy(std::uint64_t bytes, const RoundOptions& options) {
  TESSER_TRANSPORT_ASSIGN(const MemoryRegion memory, MemoryRegion::map(0, 1, 4 * bytes, kMemory));
  return measure_memcpy(memory.span(), options);
}

}  // namespace tesser::transport
