#include "runtime/passes/push_gradients.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "runtime/passes/passes.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Program;
using graph::Role;
using graph::Value;
using graph::ValueId;
using graph::ValueRef;

bool flag_argument(const Node& node, std::size_t index) {
  const bool* flag = index < node.args.size() ? std::get_if<bool>(&node.args[index]) : nullptr;
  return flag != nullptr && *flag;
}

double number(const Node& node, std::size_t index) { return graph::number_argument(node, index).value_or(0); }

constexpr std::size_t kGradient = 1;  // its place among the arguments of both updates

tl::unexpected<Error> refused(const std::string& why) { return invalid_input("replicas meet in a hub, which " + why); }

UpdateRule rule_of(const Program& program, const Node& node) {
  UpdateRule rule;
  rule.is_adam = node.op == "tesser::adam";
  const std::size_t rate = rule.is_adam ? 5 : 3;
  rule.schedule = program.value(graph::value_argument(node, rate)).schedule;
  if (rule.is_adam) {
    rule.beta1 = number(node, 7);
    rule.beta2 = number(node, 8);
    rule.eps = number(node, 9);
    rule.weight_decay = number(node, 10);
    rule.decoupled_weight_decay = flag_argument(node, 11);
    rule.amsgrad = flag_argument(node, 12);
    rule.maximize = flag_argument(node, 13);
  } else {
    rule.momentum = number(node, 5);
    rule.dampening = number(node, 6);
    rule.weight_decay = number(node, 7);
    rule.nesterov = flag_argument(node, 8);
    rule.maximize = flag_argument(node, 9);
  }
  return rule;
}

Result<void> check_update(const Program& program, const Uses& uses, const Node& node, const UpdatedParameter& updated) {
  const Value& parameter = program.value(updated.parameter);
  std::vector<ValueId> changed = updated.state;
  changed.insert(changed.begin(), updated.parameter);
  for (std::size_t i = 0; i < changed.size(); ++i) {
    const Value& value = program.value(changed[i]);
    const ValueId output = node.outputs[i];
    if (!value.is_state() || output == kNone || !uses.readers[static_cast<std::size_t>(output)].empty()) {
      return refused("updates the parameters that a worker has; by this plan workers update parts of '" +
                     parameter.name +
                     "' for one another. Use another plan, as --preset default finds it, or --workers 1");
    }
    if (value.dtype != DType::kFloat32) {
      return refused("updates float32; '" + value.name + "' is " + std::string(dtype_name(value.dtype)));
    }
  }
  const ValueId rate = graph::value_argument(node, node.op == "tesser::adam" ? 5 : 3);
  if (rate == kNone || program.value(rate).role != Role::kLearningRate) {
    return refused("takes learning rates from schedules; that of '" + parameter.name + "' is computed by the step");
  }
  for (const graph::StateOutput& output : program.state_outputs) {
    if (output.value == updated.parameter) {
      return refused("has no old weights; '" + program.value(output.state).name + "' keeps those of '" +
                     parameter.name + "'");
    }
  }
  return {};
}

// The node that makes the value, if it is one of this operator.
const Node* maker(const Program& program, ValueId value, const char* op) {
  const NodeId producer = value == kNone ? kNone : program.value(value).producer;
  return producer != kNone && program.node(producer).op == op ? &program.node(producer) : nullptr;
}

bool is_two_norm(const Node* node) {
  return node != nullptr && graph::number_argument(*node, 1).value_or(2) == 2 &&
         (node->args.size() < 3 || std::holds_alternative<graph::None>(node->args[2]));
}

// Clipping as capture writes it: gradient * clamp(1 / (norm + 1e-6) * clip_norm, None, 1).
struct Clipping {
  double norm = 0;
  std::vector<ValueId> gradients;  // of which it is the norm; sorted, one that two parameters share twice
};

std::optional<Clipping> clipping_by(const Program& program, ValueId factor) {
  Clipping clipping;
  const Node* clamp = maker(program, factor, "aten::clamp");
  if (clamp == nullptr || graph::value_argument(*clamp, 1) != kNone || graph::number_argument(*clamp, 1) ||
      graph::number_argument(*clamp, 2) != 1.0) {
    return std::nullopt;
  }
  const Node* times = maker(program, graph::value_argument(*clamp, 0), "aten::mul.Scalar");
  const Node* inverse =
      times == nullptr ? nullptr : maker(program, graph::value_argument(*times, 0), "aten::reciprocal");
  const Node* sum =
      inverse == nullptr ? nullptr : maker(program, graph::value_argument(*inverse, 0), "aten::add.Scalar");
  if (sum == nullptr || graph::number_argument(*sum, 1) != 1e-6) {
    return std::nullopt;
  }
  const Node* total = maker(program, graph::value_argument(*sum, 0), "aten::linalg_vector_norm");
  const Node* stack = total == nullptr ? nullptr : maker(program, graph::value_argument(*total, 0), "aten::stack");
  const auto* norms = stack == nullptr ? nullptr : std::get_if<std::vector<ValueRef>>(&stack->args[0]);
  if (norms == nullptr || !is_two_norm(total)) {
    return std::nullopt;
  }
  for (const ValueRef& each : *norms) {
    const Node* norm = maker(program, each.id, "aten::linalg_vector_norm");
    if (!is_two_norm(norm)) {
      return std::nullopt;
    }
    clipping.gradients.push_back(graph::value_argument(*norm, 0));
  }
  std::sort(clipping.gradients.begin(), clipping.gradients.end());
  clipping.norm = number(*times, 1);
  return clipping;
}

// Drops nodes of clipping whose results nobody reads any more.
void drop_unread_clipping(Program& program) {
  const Uses uses(program);
  std::vector<std::size_t> readers(program.values.size());
  for (std::size_t value = 0; value < readers.size(); ++value) {
    readers[value] = uses.readers[value].size() + (uses.is_output[value] ? 1 : 0);
  }
  std::vector<std::string> names;
  for (const Node& node : program.nodes) {
    names.push_back(node.name);
  }
  std::vector<Node> kept;
  for (auto node = program.nodes.rbegin(); node != program.nodes.rend(); ++node) {
    const bool is_read = std::any_of(node->outputs.begin(), node->outputs.end(), [&](ValueId output) {
      return output != kNone && readers[static_cast<std::size_t>(output)] > 0;
    });
    if (node->phase != Phase::kClip || is_read) {
      kept.push_back(std::move(*node));
      continue;
    }
    std::vector<ValueId> read = graph::values_read(*node);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (const ValueId value : read) --readers[static_cast<std::size_t>(value)];
  }
  std::reverse(kept.begin(), kept.end());
  // Links from backward to forward nodes are kept: the search for a plan uses them.
  std::unordered_map<std::string, std::string> forward;
  std::unordered_map<std::string, NodeId> places;
  for (NodeId place = 0; place < static_cast<NodeId>(kept.size()); ++place) {
    const Node& node = kept[static_cast<std::size_t>(place)];
    places.emplace(node.name, place);
    if (node.forward != kNone) {
      forward.emplace(node.name, names[static_cast<std::size_t>(node.forward)]);
    }
  }
  replace_nodes(program, std::move(kept));
  for (Node& node : program.nodes) {
    const auto linked = forward.find(node.name);
    const auto place = linked == forward.end() ? places.end() : places.find(linked->second);
    node.forward = place == places.end() ? kNone : place->second;
  }
}

}  // namespace

// The updates then read the gradients as they were before.
Result<double> take_clipping(Program& program) {
  const auto is_clip = [](const Node& node) { return node.phase == Phase::kClip; };
  if (std::none_of(program.nodes.begin(), program.nodes.end(), is_clip)) {
    return 0;
  }
  ValueId factor = kNone;
  std::vector<ValueId> gradients;
  std::vector<std::pair<Node*, ValueId>> updates;
  for (Node& node : program.nodes) {
    if (!is_update(node)) {
      continue;
    }
    const Node* clipped = maker(program, graph::value_argument(node, kGradient), "aten::mul.Tensor");
    const ValueId by = clipped == nullptr || !is_clip(*clipped) ? kNone : graph::value_argument(*clipped, 1);
    if (by == kNone || (factor != kNone && by != factor)) {
      factor = kNone;
      break;
    }
    factor = by;
    updates.emplace_back(&node, graph::value_argument(*clipped, 0));
    gradients.push_back(updates.back().second);
  }
  std::sort(gradients.begin(), gradients.end());
  const std::optional<Clipping> clipping = factor == kNone ? std::nullopt : clipping_by(program, factor);
  const auto otherwise =
      refused("clips gradients by the 2-norm of all of them (clip_norm); this step clips them otherwise");
  if (!clipping || clipping->gradients != gradients) {
    return otherwise;
  }
  for (auto& [node, gradient] : updates) {
    node->args[kGradient] = ValueRef{gradient};
  }
  drop_unread_clipping(program);
  if (std::any_of(program.nodes.begin(), program.nodes.end(), is_clip)) {
    return otherwise;  // by value before the norm: each replica would clip its own gradients, not their mean
  }
  return clipping->norm;
}

Result<Updates> find_updates(const Program& program) {
  Updates updates;
  const Uses uses(program);
  for (const Node& node : program.nodes) {
    if (!is_update(node)) {
      continue;
    }
    UpdatedParameter updated;
    updated.parameter = graph::value_argument(node, 0);
    for (std::size_t i = 2; i < (node.op == "tesser::adam" ? 5U : 3U); ++i) {
      if (graph::value_argument(node, i) != kNone) {
        updated.state.push_back(graph::value_argument(node, i));
      }
    }
    TESSER_RETURN_IF_ERROR(check_update(program, uses, node, updated));
    const UpdateRule rule = rule_of(program, node);
    const auto known = std::find(updates.rules.begin(), updates.rules.end(), rule);
    updated.rule = static_cast<std::size_t>(known - updates.rules.begin());
    if (known == updates.rules.end()) {
      updates.rules.push_back(rule);
    }
    const auto same = [&](const UpdatedParameter& each) { return each.parameter == updated.parameter; };
    if (std::any_of(updates.parameters.begin(), updates.parameters.end(), same)) {
      return refused("updates each parameter once a step; '" + program.value(updated.parameter).name +
                     "' is updated twice");
    }
    updates.parameters.push_back(std::move(updated));
  }
  std::sort(updates.parameters.begin(), updates.parameters.end(),
            [](const UpdatedParameter& a, const UpdatedParameter& b) { return a.parameter < b.parameter; });
  return updates;
}

Program push_gradients(Program program, const Updates& updates) {
  std::unordered_map<ValueId, std::int64_t> numbers;
  for (std::size_t i = 0; i < updates.parameters.size(); ++i) {
    numbers.emplace(updates.parameters[i].parameter, static_cast<std::int64_t>(i));
  }
  const memory::Liveness liveness = memory::analyze_liveness(program);
  // By node: parameters whose gradient lies in memory that it makes.
  std::unordered_map<NodeId, std::vector<ValueId>> made_by;
  for (const Node& node : program.nodes) {
    if (is_update(node)) {
      const auto gradient = static_cast<std::size_t>(graph::value_argument(node, kGradient));
      const auto storage = static_cast<std::size_t>(liveness.storage_of[gradient]);
      made_by[program.value(liveness.storages[storage].owner).producer].push_back(graph::value_argument(node, 0));
    }
  }
  std::unordered_set<ValueId> waited;
  std::vector<Node> nodes;
  nodes.reserve(program.nodes.size() + 2 * numbers.size());
  std::unordered_set<ValueId> dropped;  // new state that now is the hub's
  const auto wait_for = [&](ValueId parameter, Phase phase) {
    const auto found = numbers.find(parameter);
    if (found == numbers.end() || !waited.insert(parameter).second) {
      return;
    }
    Node wait;
    wait.name = program.value(parameter).name + "/wait";
    wait.op = kWaitForWeights;
    wait.args = {ValueRef{parameter}, found->second};
    wait.phase = phase;
    nodes.push_back(std::move(wait));
  };
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes.size()); ++id) {
    Node& node = program.nodes[static_cast<std::size_t>(id)];
    for (const ValueId value : graph::values_read(node)) {
      wait_for(value, node.phase);
    }
    for (const ValueId parameter : made_by[id]) {
      wait_for(parameter, node.phase);
    }
    if (!is_update(node)) {
      nodes.push_back(std::move(node));
      continue;
    }
    const ValueId parameter = graph::value_argument(node, 0);
    Node push;
    push.name = program.value(parameter).name + "/push";
    push.op = kPushGradient;
    push.args = {ValueRef{parameter}, node.args[kGradient], numbers.at(parameter)};
    push.phase = node.phase;
    push.module = node.module;
    push.source = node.source;
    for (const ValueId output : node.outputs) {
      dropped.insert(output);
    }
    nodes.push_back(std::move(push));
  }
  std::erase_if(program.state_outputs,
                [&](const graph::StateOutput& output) { return dropped.contains(output.value); });
  replace_nodes(program, std::move(nodes));
  return program;
}

std::vector<ValueId> gradient_storages(const Program& program, const memory::Liveness& liveness) {
  std::vector<ValueId> owners;
  for (const Node& node : program.nodes) {
    if (node.op != kPushGradient) {
      continue;
    }
    const auto gradient = static_cast<std::size_t>(graph::value_argument(node, kGradient));
    const memory::Storage& storage = liveness.storages[static_cast<std::size_t>(liveness.storage_of[gradient])];
    const bool is_whole = storage.bytes == program.value(graph::value_argument(node, 0)).bytes();
    if (!storage.is_input && is_whole && std::find(owners.begin(), owners.end(), storage.owner) == owners.end()) {
      owners.push_back(storage.owner);
    }
  }
  return owners;
}

}  // namespace tesser::runtime
