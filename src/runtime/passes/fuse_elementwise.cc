#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/fused_expression.h"
#include "runtime/passes/passes.h"

namespace tesser::runtime {
namespace {

using graph::Argument;
using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Program;
using graph::Value;
using graph::ValueId;
using graph::ValueRef;

constexpr std::size_t kLargestGroup = 24;
// A group runs where its last member stands and keeps its inputs alive until then, so members must stand close
// together.
constexpr NodeId kFarthestMember = 16;

// One program node as one instruction: which values it reads as tensors, and its numbers.
struct Elementwise {
  Opcode opcode;
  std::vector<ValueId> operands;
  std::vector<double> numbers;
};

std::optional<double> number(const Node& node, std::size_t index, std::optional<double> fallback = std::nullopt) {
  if (index >= node.args.size() || std::holds_alternative<graph::None>(node.args[index])) return fallback;
  return graph::number_argument(node, index);
}

const std::map<std::string, Opcode>& unary_operators() {
  static const std::map<std::string, Opcode> operators{{"aten::neg", Opcode::kNeg},
                                                       {"aten::abs", Opcode::kAbs},
                                                       {"aten::exp", Opcode::kExp},
                                                       {"aten::log", Opcode::kLog},
                                                       {"aten::sqrt", Opcode::kSqrt},
                                                       {"aten::rsqrt", Opcode::kRsqrt},
                                                       {"aten::reciprocal", Opcode::kReciprocal},
                                                       {"aten::tanh", Opcode::kTanh},
                                                       {"aten::sigmoid", Opcode::kSigmoid},
                                                       {"aten::relu", Opcode::kRelu},
                                                       {"aten::silu", Opcode::kSilu},
                                                       {"aten::erf", Opcode::kErf},
                                                       {"aten::sin", Opcode::kSin},
                                                       {"aten::cos", Opcode::kCos}};
  return operators;
}

const std::map<std::string, Opcode>& binary_operators() {
  static const std::map<std::string, Opcode> operators{{"aten::maximum", Opcode::kMaximum},
                                                       {"aten::minimum", Opcode::kMinimum},
                                                       {"aten::tanh_backward", Opcode::kTanhBackward},
                                                       {"aten::sigmoid_backward", Opcode::kSigmoidBackward},
                                                       {"aten::silu_backward", Opcode::kSiluBackward}};
  return operators;
}

// add, sub, mul, div of two tensors, or of a tensor and a number.
std::optional<Elementwise> arithmetic(const Node& node) {
  const std::string& op = node.op;
  const bool sum =
      op == "aten::add.Tensor" || op == "aten::sub.Tensor" || op == "aten::add.Scalar" || op == "aten::sub.Scalar";
  const bool product = op == "aten::mul.Tensor" || op == "aten::mul.Scalar";
  const bool quotient = op == "aten::div.Tensor" || op == "aten::div.Scalar";
  if (!sum && !product && !quotient) return std::nullopt;
  const ValueId a = graph::value_argument(node, 0);
  const ValueId b = graph::value_argument(node, 1);
  if (a == kNone) return std::nullopt;
  double alpha = 1;
  if (sum) {
    const auto given = number(node, 2, 1.0);
    if (!given) return std::nullopt;
    alpha = op.rfind("aten::sub", 0) == 0 ? -*given : *given;
  }
  if (b != kNone) {
    if (sum) return Elementwise{Opcode::kAdd, {a, b}, {alpha}};
    return Elementwise{product ? Opcode::kMul : Opcode::kDiv, {a, b}, {}};
  }
  const auto constant = number(node, 1);
  if (!constant) return std::nullopt;
  if (sum) return Elementwise{Opcode::kAddNumber, {a}, {alpha * *constant}};
  return Elementwise{product ? Opcode::kMulNumber : Opcode::kDivNumber, {a}, {*constant}};
}

std::optional<Elementwise> activation(const Node& node) {
  const std::string& op = node.op;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const ValueId a = graph::value_argument(node, 0);
  const ValueId b = graph::value_argument(node, 1);
  const auto tanh_form = [&](std::size_t index) {
    const auto* form = index < node.args.size() ? std::get_if<std::string>(&node.args[index]) : nullptr;
    return form != nullptr && *form == "tanh";
  };
  if (op == "aten::gelu") return Elementwise{tanh_form(1) ? Opcode::kGeluTanh : Opcode::kGelu, {a}, {}};
  if (op == "aten::gelu_backward" && b != kNone) {
    return Elementwise{tanh_form(2) ? Opcode::kGeluTanhBackward : Opcode::kGeluBackward, {a, b}, {}};
  }
  if (op == "aten::threshold_backward" && b != kNone) {
    const auto threshold = number(node, 2);
    if (!threshold) return std::nullopt;
    return Elementwise{Opcode::kThresholdBackward, {a, b}, {*threshold}};
  }
  if (op == "aten::leaky_relu") {
    const auto slope = number(node, 1, 0.01);
    if (!slope) return std::nullopt;
    return Elementwise{Opcode::kLeakyRelu, {a}, {*slope}};
  }
  if (op == "aten::leaky_relu_backward" && b != kNone) {
    const auto slope = number(node, 2);
    if (!slope) return std::nullopt;
    return Elementwise{Opcode::kLeakyReluBackward, {a, b}, {*slope}};
  }
  if (op == "aten::hardtanh" || op == "aten::clamp" || op == "aten::clamp_min" || op == "aten::clamp_max") {
    const bool hardtanh = op == "aten::hardtanh";
    std::optional<double> low = -kInfinity;
    std::optional<double> high = kInfinity;
    if (op != "aten::clamp_max") low = number(node, 1, hardtanh ? -1.0 : -kInfinity);
    if (op == "aten::clamp_max") high = number(node, 1);
    if (hardtanh || op == "aten::clamp") high = number(node, 2, hardtanh ? 1.0 : kInfinity);
    if (!low || !high) return std::nullopt;
    return Elementwise{Opcode::kClamp, {a}, {*low, *high}};
  }
  if (op == "aten::hardtanh_backward" && b != kNone) {
    const auto low = number(node, 2);
    const auto high = number(node, 3);
    if (!low || !high) return std::nullopt;
    return Elementwise{Opcode::kHardtanhBackward, {a, b}, {*low, *high}};
  }
  if (op == "aten::pow.Tensor_Scalar") {
    const auto exponent = number(node, 1);
    if (!exponent || !is_fused_exponent(*exponent)) return std::nullopt;
    return Elementwise{Opcode::kPow, {a}, {*exponent}};
  }
  if (op == "aten::rsub.Scalar") {
    const auto minuend = number(node, 1);
    if (!minuend || number(node, 2, 1.0) != 1.0) return std::nullopt;
    return Elementwise{Opcode::kNumberSub, {a}, {*minuend}};
  }
  if (op == "aten::where.self" && b != kNone && graph::value_argument(node, 2) != kNone) {
    return Elementwise{Opcode::kWhere, {a, b, graph::value_argument(node, 2)}, {}};
  }
  if (op == "aten::masked_fill.Scalar" && b != kNone) {
    const auto value = number(node, 2);
    if (!value) return std::nullopt;
    return Elementwise{Opcode::kMaskedFill, {a, b}, {*value}};
  }
  if (op == "tesser::dropout") {
    const auto probability = number(node, 1);
    const auto id = number(node, 4);
    if (!probability || !id) return std::nullopt;
    return Elementwise{Opcode::kDropout, {a}, {*probability, *id}};
  }
  return std::nullopt;
}

// A node as an instruction, or nothing when the fused kernel cannot compute it.
std::optional<Elementwise> elementwise(const Program& program, const Node& node) {
  if (node.outputs.size() != 1 || node.outputs[0] == kNone) return std::nullopt;
  const Value& result = program.value(node.outputs[0]);
  if (result.dtype != DType::kFloat32 || result.elements() == 0) return std::nullopt;
  std::optional<Elementwise> found;
  if (const auto unary = unary_operators().find(node.op); unary != unary_operators().end()) {
    found = Elementwise{unary->second, {graph::value_argument(node, 0)}, {}};
  } else if (const auto binary = binary_operators().find(node.op); binary != binary_operators().end()) {
    found = Elementwise{binary->second, {graph::value_argument(node, 0), graph::value_argument(node, 1)}, {}};
  } else if (found = arithmetic(node); !found) {
    found = activation(node);
  }
  if (!found) return std::nullopt;
  bool whole = false;  // at least one operand has the result's shape, which gives the order in memory
  for (std::size_t i = 0; i < found->operands.size(); ++i) {
    const ValueId operand = found->operands[i];
    if (operand == kNone) return std::nullopt;
    const Value& value = program.value(operand);
    const bool mask = (found->opcode == Opcode::kWhere && i == 0) || (found->opcode == Opcode::kMaskedFill && i == 1);
    if (value.dtype != (mask ? DType::kBool : DType::kFloat32)) return std::nullopt;
    whole = whole || (value.shape == result.shape && !mask);
  }
  if (!whole) return std::nullopt;
  // Dropout's numbers follow the row-major order of the whole tensor, so its operand must be the tensor itself.
  if (found->opcode == Opcode::kDropout && program.value(found->operands[0]).shape != result.shape) return std::nullopt;
  return found;
}

struct Group {
  std::vector<NodeId> members;  // in program order
};

class Fuser {
 public:
  explicit Fuser(Program& program, layout::Weights weights)
      : program_(program),
        uses_(program),
        layouts_(layout::Layouts::of(program, weights)),
        group_of_(program.nodes.size(), -1) {}

  void run() {
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes.size()); ++id) form(id);
    std::vector<Node> nodes;
    nodes.reserve(program_.nodes.size());
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes.size()); ++id) {
      const int group = group_of_[static_cast<std::size_t>(id)];
      if (group < 0 || groups_[static_cast<std::size_t>(group)].members.size() < 2) {
        nodes.push_back(program_.node(id));
      } else if (groups_[static_cast<std::size_t>(group)].members.back() == id) {
        Node fused = fused_node(groups_[static_cast<std::size_t>(group)]);
        if (!fused.outputs.empty()) nodes.push_back(std::move(fused));  // else nobody reads any of it
      }
    }
    replace_nodes(program_, std::move(nodes));
  }

 private:
  // The whole group runs where its last member stands, so every reader of its values outside must come after that.
  bool can_join(const Group& group, NodeId last, const Node& node) const {
    const Node& first = program_.node(group.members.front());
    if (group.members.size() >= kLargestGroup || first.phase != node.phase) return false;
    if (last - group.members.back() > kFarthestMember) return false;
    const Shape& shape = program_.value(first.outputs[0]).shape;
    if (program_.value(node.outputs[0]).shape != shape) return false;
    // One walk over memory serves all results.
    if (!layout::same(shape, layouts_[first.outputs[0]], layouts_[node.outputs[0]])) return false;
    for (const NodeId member : group.members) {
      const ValueId value = program_.node(member).outputs[0];
      for (const NodeId reader : uses_.readers[static_cast<std::size_t>(value)]) {
        const bool inside = reader == last ||
                            group_of_[static_cast<std::size_t>(reader)] == group_of_[static_cast<std::size_t>(member)];
        if (!inside && reader < last) return false;
      }
    }
    return true;
  }

  void form(NodeId id) {
    const Node& node = program_.node(id);
    const auto instruction = elementwise(program_, node);
    if (!instruction) return;
    for (const ValueId operand : instruction->operands) {
      const NodeId producer = program_.value(operand).producer;
      if (producer == kNone) continue;
      const int group = group_of_[static_cast<std::size_t>(producer)];
      if (group < 0 || !can_join(groups_[static_cast<std::size_t>(group)], id, node)) continue;
      groups_[static_cast<std::size_t>(group)].members.push_back(id);
      group_of_[static_cast<std::size_t>(id)] = group;
      return;
    }
    group_of_[static_cast<std::size_t>(id)] = static_cast<int>(groups_.size());
    groups_.push_back(Group{{id}});
  }

  Node fused_node(const Group& group) {
    const std::vector<NodeId>& members = group.members;
    const Node& last = program_.node(members.back());
    Expression expression;
    std::vector<ValueId> inputs;
    std::map<ValueId, Operand> made;
    const Node* dropout = nullptr;
    Node fused;
    for (const NodeId member : members) {
      const Node& node = program_.node(member);
      const Elementwise each = *elementwise(program_, node);
      if (each.opcode == Opcode::kDropout) dropout = &node;
      Instruction instruction;
      instruction.opcode = each.opcode;
      instruction.numbers = each.numbers;
      for (const ValueId operand : each.operands) {
        if (const auto found = made.find(operand); found != made.end()) {
          instruction.operands.push_back(found->second);
          continue;
        }
        auto place = std::find(inputs.begin(), inputs.end(), operand);
        if (place == inputs.end()) place = inputs.insert(inputs.end(), operand);
        instruction.operands.push_back({Operand::Kind::kInput, static_cast<int>(place - inputs.begin())});
      }
      const ValueId value = node.outputs[0];
      const auto& readers = uses_.readers[static_cast<std::size_t>(value)];
      const bool kept = uses_.is_output[static_cast<std::size_t>(value)] ||
                        std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
                          return std::find(members.begin(), members.end(), reader) == members.end();
                        });
      if (kept) {
        instruction.result = {Operand::Kind::kOutput, expression.outputs++};
        fused.outputs.push_back(value);
      } else {
        instruction.result = {Operand::Kind::kTemporary, expression.temporaries++};
      }
      made.emplace(value, instruction.result);
      expression.instructions.push_back(std::move(instruction));
    }
    expression.inputs = static_cast<int>(inputs.size());
    fused.name = last.name + "/fused";
    fused.op = "tesser::fused";
    fused.phase = last.phase;
    fused.module = last.module;
    fused.source = last.source;
    std::vector<ValueRef> references;
    for (const ValueId input : inputs) references.push_back({input});
    const Shape& shape = program_.value(last.outputs[0]).shape;
    fused.args = {Argument(print(expression)), Argument(std::move(references)),
                  Argument(layout::order_of(shape, layouts_[last.outputs[0]]))};
    if (dropout != nullptr) {
      fused.args.push_back(dropout->args[2]);
      fused.args.push_back(dropout->args[3]);
    }
    return fused;
  }

  Program& program_;
  Uses uses_;
  layout::Layouts layouts_;
  std::vector<int> group_of_;  // by node; -1 for none
  std::vector<Group> groups_;
};

}  // namespace

graph::Program fuse_elementwise(graph::Program program, layout::Weights weights) {
  Fuser(program, weights).run();
  return program;
}

}  // namespace tesser::runtime
