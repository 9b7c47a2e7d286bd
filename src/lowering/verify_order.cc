#include "lowering/verify_order.h"

#include <optional>
#include <string>
#include <unordered_map>

namespace tesser::lowering {
namespace {

using graph::Node;
using graph::NodeId;
using graph::Program;

struct Transfer {
  int opens = 0;  // how many nodes of all programs do it
  int sends = 0;
  int receives = 0;
  std::size_t sender = 0;
  std::size_t receiver = 0;  // who opens
  std::size_t taker = 0;     // who receives
  std::int64_t to = -1;      // whom the sender means
  std::int64_t from = -1;    // whom the receiver means
  DType sent_type = DType::kFloat32;
  DType opened_type = DType::kFloat32;
  std::vector<std::int64_t> sent_size;
  std::vector<std::int64_t> opened_size;
  bool is_open = false;  // while the programs run
  bool is_sent = false;
};

const std::vector<std::int64_t>* integers(const Node& node, std::size_t place) {
  return place < node.args.size() ? std::get_if<std::vector<std::int64_t>>(&node.args[place]) : nullptr;
}
std::int64_t integer(const Node& node, std::size_t place) {
  const auto* const found = place < node.args.size() ? std::get_if<std::int64_t>(&node.args[place]) : nullptr;
  return found == nullptr ? -1 : *found;
}

class OrderVerifier {
 public:
  explicit OrderVerifier(const std::vector<Program>& workers) : workers_(workers), next_(workers.size(), 0) {}

  Result<void> run() {
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
      for (const Node& node : workers_[worker].nodes) {
        TESSER_RETURN_IF_ERROR(collect(worker, node));
      }
    }
    for (const auto& [number, transfer] : transfers_) {
      TESSER_RETURN_IF_ERROR(check(number, transfer));
    }
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
      for (const Node& node : workers_[worker].nodes) {
        if (node.op == "tesser::sent") {
          TESSER_RETURN_IF_ERROR(check_sent(worker, node));
        }
      }
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
        moved = advance(worker) || moved;
      }
    }
    return stuck();
  }

 private:
  static tl::unexpected<Error> malformed(std::size_t worker, const Node& node) {
    return invalid_input("worker " + std::to_string(worker) + ": node " + node.name +
                         ": the arguments are not those of " + node.op);
  }

  Result<void> collect(std::size_t worker, const Node& node) {
    if (node.op == "tesser::open") {
      const auto* const from = integers(node, 0);
      const auto* const numbers = integers(node, 1);
      const auto* const sizes = integers(node, 3);
      if (from == nullptr || numbers == nullptr || sizes == nullptr || from->size() != numbers->size() ||
          node.outputs.size() != 1) {
        return malformed(worker, node);
      }
      const graph::Value& buffer = workers_[worker].value(node.outputs.front());
      const std::size_t rank = buffer.shape.size();
      if (sizes->size() != rank * numbers->size()) {
        return malformed(worker, node);
      }
      for (std::size_t index = 0; index < numbers->size(); ++index) {
        Transfer& transfer = transfers_[(*numbers)[index]];
        ++transfer.opens;
        transfer.receiver = worker;
        transfer.from = (*from)[index];
        transfer.opened_type = buffer.dtype;
        const auto begin = sizes->begin() + static_cast<std::ptrdiff_t>(rank * index);
        transfer.opened_size.assign(begin, begin + static_cast<std::ptrdiff_t>(rank));
      }
    } else if (node.op == "tesser::send") {
      const graph::ValueId source = graph::value_argument(node, 0);
      const auto* const size = integers(node, 4);
      if (source == graph::kNone || size == nullptr) {
        return malformed(worker, node);
      }
      Transfer& transfer = transfers_[integer(node, 2)];
      ++transfer.sends;
      transfer.sender = worker;
      transfer.to = integer(node, 1);
      transfer.sent_type = workers_[worker].value(source).dtype;
      transfer.sent_size = *size;
    } else if (node.op == "tesser::receive") {
      const auto* const numbers = integers(node, 1);
      if (numbers == nullptr) {
        return malformed(worker, node);
      }
      for (const std::int64_t number : *numbers) {
        ++transfers_[number].receives;
        transfers_[number].taker = worker;
      }
    }
    return {};
  }

  static Result<void> check(std::int64_t number, const Transfer& transfer) {
    const std::string name = "transfer " + std::to_string(number);
    if (transfer.opens != 1 || transfer.sends != 1 || transfer.receives != 1) {
      return invalid_input(name + " is opened " + std::to_string(transfer.opens) + ", sent " +
                           std::to_string(transfer.sends) + " and received " + std::to_string(transfer.receives) +
                           " times; each happens once");
    }
    if (transfer.from != static_cast<std::int64_t>(transfer.sender) ||
        transfer.to != static_cast<std::int64_t>(transfer.receiver)) {
      return invalid_input(name + " is sent by worker " + std::to_string(transfer.sender) + " to " +
                           std::to_string(transfer.to) + ", but opened by worker " + std::to_string(transfer.receiver) +
                           " for " + std::to_string(transfer.from));
    }
    if (transfer.taker != transfer.receiver) {
      return invalid_input(name + " is opened by worker " + std::to_string(transfer.receiver) +
                           ", but received by worker " + std::to_string(transfer.taker));
    }
    if (transfer.sent_type != transfer.opened_type || transfer.sent_size != transfer.opened_size) {
      return invalid_input(name + " is sent as " + type_text(transfer.sent_type, transfer.sent_size) +
                           ", but opened as " + type_text(transfer.opened_type, transfer.opened_size));
    }
    return {};
  }

  // A node that waits until a transfer has left waits for one of its own worker.
  Result<void> check_sent(std::size_t worker, const Node& node) const {
    const auto found = transfers_.find(integer(node, 2));
    if (found != transfers_.end() && found->second.sender == worker) {
      return {};
    }
    return invalid_input("worker " + std::to_string(worker) + ": node " + node.name + " waits for transfer " +
                         std::to_string(integer(node, 2)) + ", which it does not send");
  }

  // The transfer that a node waits for; nothing when it can run.
  std::optional<std::int64_t> awaited(const Node& node) {
    if (node.op == "tesser::send") {
      return transfers_[integer(node, 2)].is_open ? std::nullopt : std::optional(integer(node, 2));
    }
    if (node.op == "tesser::sent") {
      return transfers_[integer(node, 2)].is_sent ? std::nullopt : std::optional(integer(node, 2));
    }
    if (node.op == "tesser::receive") {
      for (const std::int64_t number : *integers(node, 1)) {
        if (!transfers_[number].is_sent) {
          return number;
        }
      }
    }
    return std::nullopt;
  }

  // Runs a worker until it waits; whether it ran anything.
  bool advance(std::size_t worker) {
    const std::vector<Node>& nodes = workers_[worker].nodes;
    std::size_t& next = next_[worker];
    const std::size_t before = next;
    for (; next < nodes.size() && !awaited(nodes[next]); ++next) {
      if (nodes[next].op == "tesser::open") {
        for (const std::int64_t number : *integers(nodes[next], 1)) {
          transfers_[number].is_open = true;
        }
      } else if (nodes[next].op == "tesser::send") {
        transfers_[integer(nodes[next], 2)].is_sent = true;
      }
    }
    return next != before;
  }

  Result<void> stuck() {
    std::string message;
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
      if (next_[worker] == workers_[worker].nodes.size()) {
        continue;
      }
      const Node& node = workers_[worker].nodes[next_[worker]];
      const Transfer& transfer = transfers_[*awaited(node)];
      const bool waits_for_receiver = node.op == "tesser::send";
      message += "\n  worker " + std::to_string(worker) + " at node " + node.name + " waits for worker " +
                 std::to_string(waits_for_receiver ? transfer.receiver : transfer.sender) +
                 (waits_for_receiver ? " to open" : " to send") + " transfer " + std::to_string(*awaited(node));
    }
    if (message.empty()) {
      return {};
    }
    return invalid_input("the workers' programs wait for each other for ever:" + message);
  }

  const std::vector<Program>& workers_;
  std::vector<std::size_t> next_;  // by worker: the node that runs next
  std::unordered_map<std::int64_t, Transfer> transfers_;
};

}  // namespace

Result<void> verify_order(const std::vector<Program>& workers) { return OrderVerifier(workers).run(); }

}  // namespace tesser::lowering
