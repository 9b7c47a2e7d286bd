#include <algorithm>
#include <vector>

#include "graph/operator_class.h"
#include "runtime/passes/passes.h"

namespace tesser::runtime {

using graph::NodeId;
using graph::ValueId;

namespace {

// The last node that reads a value or a view of it.
NodeId last_reader(const graph::Program& program, const Uses& uses, ValueId value, NodeId except) {
  NodeId last = -1;
  std::vector<ValueId> aliases{value};
  while (!aliases.empty()) {
    const ValueId alias = aliases.back();
    aliases.pop_back();
    for (const NodeId reader : uses.readers[static_cast<std::size_t>(alias)]) {
      if (reader == except) continue;
      last = std::max(last, reader);
      const graph::Node& node = program.node(reader);
      if (graph::operator_class(node.op) != graph::OperatorClass::kView) continue;
      for (const ValueId output : node.outputs) {
        if (output != graph::kNone) aliases.push_back(output);
      }
    }
  }
  return last;
}

}  // namespace

graph::Program schedule_updates(graph::Program program) {
  const Uses uses(program);
  // When every node but the updates keeps its place, an update may run right after the last of: producers of what it
  // reads, and readers of the state it overwrites or of views of it.
  std::vector<std::vector<NodeId>> updates_after(program.nodes.size() + 1);
  std::vector<graph::Node> nodes;
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes.size()); ++id) {
    const graph::Node& node = program.node(id);
    if (!is_update(node)) continue;
    NodeId after = -1;
    bool movable = true;
    for (const ValueId value : graph::values_read(node)) {
      const NodeId producer = program.value(value).producer;
      if (producer != graph::kNone && is_update(program.node(producer))) movable = false;
      after = std::max(after, producer);
      if (!program.value(value).is_state()) continue;
      for (const NodeId reader : uses.readers[static_cast<std::size_t>(value)]) {
        if (reader != id && is_update(program.node(reader)))
          movable = false;  // two updates of one state: keep their order
      }
      after = std::max(after, last_reader(program, uses, value, id));
    }
    for (const ValueId output : node.outputs) {  // somebody computes with the new weights: leave it where it is
      if (output != graph::kNone && !uses.readers[static_cast<std::size_t>(output)].empty()) movable = false;
    }
    updates_after[static_cast<std::size_t>(movable ? after + 1 : id)].push_back(id);
  }
  nodes.reserve(program.nodes.size());
  for (NodeId id = 0; id <= static_cast<NodeId>(program.nodes.size()); ++id) {
    for (const NodeId update : updates_after[static_cast<std::size_t>(id)]) nodes.push_back(program.node(update));
    if (id < static_cast<NodeId>(program.nodes.size()) && !is_update(program.node(id)))
      nodes.push_back(program.node(id));
  }
  replace_nodes(program, std::move(nodes));
  return program;
}

}  // namespace tesser::runtime
