#include "runtime/transport_exchange.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "memory/layout.h"
#include "memory/liveness.h"
#include "memory/predict.h"

namespace tesser::runtime {
namespace {

using transport::Outcome;

// How often a waiting worker asks whether it is still wanted.
constexpr std::chrono::milliseconds kWaitSlice{100};

template <typename T>
Result<T> to_result(Outcome<T> outcome) {
  if (!outcome) {
    return tl::unexpected<Error>(transport::to_error(outcome.error()));
  }
  if constexpr (std::is_void_v<T>) {
    return {};
  } else {
    return std::move(*outcome);
  }
}

transport::Strided strided(const Runs& runs, std::uint64_t base) {
  transport::Strided layout;
  layout.offset = base + runs.offset;
  layout.run_bytes = runs.run_bytes;
  for (const Runs::Axis& axis : runs.axes) {
    layout.axes.push_back({axis.count, axis.pitch});
  }
  return layout;
}

// Arguments of nodes that verify_order() has accepted.
const Shape& integers(const graph::Node& node, std::size_t place) { return std::get<Shape>(node.args[place]); }
std::int64_t integer(const graph::Node& node, std::size_t place) { return std::get<std::int64_t>(node.args[place]); }

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

TransportExchange::TransportExchange(transport::Device& device,
                                     std::vector<std::shared_ptr<transport::Channel>> channels,
                                     TransportExchangeOptions options)
    : device_(device), channels_(std::move(channels)), options_(std::move(options)) {}

TransportExchange::~TransportExchange() = default;

Result<void> TransportExchange::prepare(const graph::Program& program) {
  TESSER_RETURN_IF_ERROR(lay_out_buffers(program));
  for (const graph::Node& node : program.nodes) {
    if (node.op == "tesser::open") {
      TESSER_RETURN_IF_ERROR(make_receivers(program, node));
    } else if (node.op == "tesser::send") {
      TESSER_RETURN_IF_ERROR(make_sender(program, node));
    }
  }
  const transport::Deadline deadline = transport::in(options_.connect_limit);
  const auto connect = [&](auto& end) -> Result<void> {
    return wait([&]() -> Outcome<bool> {
      Outcome<bool> connected = end.connected();
      if (connected && !*connected && transport::Clock::now() > deadline) {
        return transport::failure(transport::FailureKind::kTimeout, "", "a peer has not made its end of a transfer");
      }
      return connected;
    });
  };
  for (auto& [number, receiving] : receiving_) {
    TESSER_RETURN_IF_ERROR(connect(*receiving.receiver));
  }
  for (auto& [number, sending] : sending_) {
    TESSER_RETURN_IF_ERROR(connect(*sending.sender));
  }
  report_ = {};
  return {};
}

// Buffers that are never used at the same time share memory.
Result<void> TransportExchange::lay_out_buffers(const graph::Program& program) {
  const memory::Liveness liveness = memory::analyze_liveness(program);
  std::vector<memory::Block> blocks;
  std::vector<graph::ValueId> owners;
  for (const memory::Storage& storage : liveness.storages) {
    const graph::NodeId producer = program.value(storage.owner).producer;
    if (producer != graph::kNone && program.node(producer).op == "tesser::open") {
      blocks.push_back({storage.bytes, storage.first_node, storage.last_node, memory::kArenaAlignment});
      owners.push_back(storage.owner);
    }
  }
  const memory::Layout layout = memory::place(blocks);
  for (std::size_t index = 0; index < owners.size(); ++index) {
    offsets_[owners[index]] = layout.offsets[index];
  }
  buffer_bytes_ = layout.total;
  if (buffer_bytes_ > 0) {
    transport::RegionOptions region;
    region.name = options_.name + "receive buffers";
    TESSER_ASSIGN_OR_RETURN(region_, to_result(device_.allocate(static_cast<std::size_t>(buffer_bytes_), region)));
  }
  return {};
}

Result<void> TransportExchange::make_receivers(const graph::Program& program, const graph::Node& node) {
  const graph::ValueId buffer = node.outputs.front();
  const graph::Value& value = program.value(buffer);
  const Shape& from = integers(node, 0);
  const Shape& transfers = integers(node, 1);
  const layout::Order& order = integers(node, 4);
  const layout::Strides strides = layout::dense_strides(value.shape, order);
  const auto rank = static_cast<std::ptrdiff_t>(value.shape.size());
  for (std::size_t index = 0; index < transfers.size(); ++index) {
    const auto part = [&](const Shape& flat) {
      const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(index) * rank;
      return Shape(begin, begin + rank);
    };
    const Shape size = part(integers(node, 3));
    const Runs runs = runs_of(value.dtype, strides, part(integers(node, 2)), size, order);
    TESSER_ASSIGN_OR_RETURN(
        transport::StaticReceiver receiver,
        to_result(transport::StaticReceiver::open(channels_[static_cast<std::size_t>(from[index])],
                                                  transfer_name(transfers[index]), {value.dtype, size}, region_,
                                                  strided(runs, static_cast<std::uint64_t>(offsets_.at(buffer))))));
    receiving_[transfers[index]].receiver = std::make_unique<transport::StaticReceiver>(std::move(receiver));
  }
  return {};
}

Result<void> TransportExchange::make_sender(const graph::Program& program, const graph::Node& node) {
  const graph::Value& value = program.value(graph::value_argument(node, 0));
  const std::shared_ptr<transport::Channel>& channel = channels_[static_cast<std::size_t>(integer(node, 1))];
  const std::int64_t transfer = integer(node, 2);
  TESSER_ASSIGN_OR_RETURN(
      transport::StaticSender sender,
      to_result(transport::StaticSender::open(channel, transfer_name(transfer), {value.dtype, integers(node, 4)})));
  sending_[transfer] = {std::make_unique<transport::StaticSender>(std::move(sender)),
                        std::make_unique<transport::Completion>(), channel->peer()};
  return {};
}

std::byte* TransportExchange::buffer(graph::ValueId opened) { return region_->data() + offsets_.at(opened); }

Result<void> TransportExchange::wait(const std::function<Outcome<bool>()>& ready) {
  Outcome<bool> outcome = ready();
  if (outcome && !*outcome) {
    const Stopwatch stopwatch(report_.waiting_seconds);
    const auto asked = [&] {
      outcome = ready();
      return !outcome || *outcome;
    };
    while (!device_.wait(asked, transport::in(kWaitSlice))) {
      if (options_.cancelled()) {
        return failed("the run was ended while this worker waited for another");
      }
    }
  }
  if (!outcome) {
    return tl::unexpected<Error>(transport::to_error(outcome.error()));
  }
  return {};
}

Result<void> TransportExchange::open(std::span<const std::int64_t> transfers) {
  for (const std::int64_t transfer : transfers) {
    Receiving& receiving = receiving_.at(transfer);
    receiving.arrived = false;
    receiving.receiver->grant();
  }
  return {};
}

Result<void> TransportExchange::send(std::int64_t transfer, const std::byte* data, const Runs& runs) {
  Sending& sending = sending_.at(transfer);
  TESSER_RETURN_IF_ERROR(wait([&] { return sending.sender->can_send(); }));
  const Stopwatch stopwatch(report_.transfer_seconds);
  const transport::Strided source = strided(runs, 0);
  const std::uint64_t end = source.checked_end().value_or(0);
  TESSER_ASSIGN_OR_RETURN(const bool begun,
                          to_result(sending.sender->try_send(std::span(data, end), source, *sending.completion)));
  TESSER_CHECK(begun, "a transfer that could be sent was not");
  report_.sent_bytes += static_cast<std::int64_t>(source.bytes());
  return {};
}

Result<void> TransportExchange::wait_sent(std::int64_t transfer) {
  Sending& sending = sending_.at(transfer);
  return wait([&]() -> Outcome<bool> {
    if (!sending.completion->done()) {
      return false;
    }
    TESSER_TRANSPORT_RETURN_IF_FAILED(sending.completion->outcome());
    return true;
  });
}

Result<void> TransportExchange::wait_received(std::span<const std::int64_t> transfers) {
  for (const std::int64_t transfer : transfers) {
    Receiving& receiving = receiving_.at(transfer);
    if (!receiving.arrived) {
      TESSER_RETURN_IF_ERROR(wait([&] { return receiving.receiver->poll(); }));
      receiving.arrived = true;
    }
  }
  return {};
}

ExchangeReport TransportExchange::take_report() { return std::exchange(report_, {}); }

}  // namespace tesser::runtime
