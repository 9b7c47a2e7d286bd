#include "runtime/passes/passes.h"

#include <algorithm>
#include <utility>

namespace tesser::runtime {

using graph::kNone;
using graph::NodeId;
using graph::ValueId;

graph::Program prepare(graph::Program program, bool fuse, layout::Weights weights) {
  program = absorb_sums(std::move(program));
  program = pack_shared_weights(std::move(program));
  if (fuse) program = fuse_elementwise(std::move(program), weights);
  return arrange_arguments(schedule_updates(std::move(program)), weights);
}

Uses::Uses(const graph::Program& program) : readers(program.values.size()), is_output(program.values.size(), false) {
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes.size()); ++id) {
    for (const ValueId value : graph::values_read(program.node(id))) {
      auto& list = readers[static_cast<std::size_t>(value)];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  const auto mark = [&](ValueId value) {
    if (value != kNone) is_output[static_cast<std::size_t>(value)] = true;
  };
  mark(program.loss);
  for (const auto& output : program.metrics) mark(output.value);
  for (const auto& output : program.results) mark(output.value);
  for (const auto& output : program.state_outputs) mark(output.value);
}

void replace_nodes(graph::Program& program, std::vector<graph::Node> nodes) {
  std::vector<ValueId> renumbered(program.values.size(), kNone);
  std::vector<graph::Value> values;
  const auto keep = [&](ValueId id) {
    renumbered[static_cast<std::size_t>(id)] = static_cast<ValueId>(values.size());
    values.push_back(std::move(program.values[static_cast<std::size_t>(id)]));
  };
  const auto rename = [&](ValueId& id) {
    if (id != kNone) id = renumbered[static_cast<std::size_t>(id)];
  };
  for (const ValueId id : program.inputs) keep(id);
  for (NodeId id = 0; id < static_cast<NodeId>(nodes.size()); ++id) {
    graph::Node& node = nodes[static_cast<std::size_t>(id)];
    node.forward = kNone;
    for (graph::Argument& argument : node.args) {
      if (auto* reference = std::get_if<graph::ValueRef>(&argument)) rename(reference->id);
      if (auto* references = std::get_if<std::vector<graph::ValueRef>>(&argument)) {
        for (graph::ValueRef& each : *references) rename(each.id);
      }
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      keep(node.outputs[i]);
      rename(node.outputs[i]);
      values.back().producer = id;
      values.back().output_index = static_cast<int>(i);
    }
  }
  program.nodes = std::move(nodes);
  program.values = std::move(values);
  for (ValueId& id : program.inputs) rename(id);
  rename(program.loss);
  for (auto& output : program.metrics) rename(output.value);
  for (auto& output : program.results) rename(output.value);
  for (auto& output : program.state_outputs) {
    rename(output.state);
    rename(output.value);
  }
}

bool is_update(const graph::Node& node) { return node.op == "tesser::sgd" || node.op == "tesser::adam"; }

bool is_plain_addmm(const graph::Node& node) {
  const auto is_one = [&](std::size_t index) {
    return index >= node.args.size() || graph::number_argument(node, index) == 1.0;
  };
  return node.op == "aten::addmm" && is_one(3) && is_one(4);
}

}  // namespace tesser::runtime
