#include <optional>
#include <utility>
#include <vector>

#include "runtime/passes/passes.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;

bool adds_plainly(const Node& node) {
  if (node.op != "aten::add.Tensor" || node.outputs.size() != 1) return false;
  return node.args.size() < 3 || graph::number_argument(node, 2) == 1.0;
}

}  // namespace

graph::Program absorb_sums(graph::Program program) {
  const Uses uses(program);
  std::vector<bool> absorbed(program.nodes.size(), false);
  std::vector<std::optional<Node>> replaced(program.nodes.size());
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes.size()); ++id) {
    const Node& sum = program.node(id);
    if (!adds_plainly(sum)) continue;
    for (const std::size_t place : {std::size_t{0}, std::size_t{1}}) {
      const ValueId result = graph::value_argument(sum, place);
      const ValueId addend = graph::value_argument(sum, 1 - place);
      if (result == kNone || addend == kNone || result == addend) continue;
      const graph::Value& value = program.value(result);
      const graph::Value& other = program.value(addend);
      if (value.producer == kNone || uses.is_output[static_cast<std::size_t>(result)]) continue;
      const Node& product = program.node(value.producer);
      if (product.op != "aten::mm" || product.phase != sum.phase || absorbed[static_cast<std::size_t>(value.producer)])
        continue;
      if (uses.readers[static_cast<std::size_t>(result)].size() != 1 || other.shape != value.shape ||
          other.dtype != DType::kFloat32 || value.dtype != DType::kFloat32) {
        continue;
      }
      Node joined = sum;
      joined.op = "aten::addmm";
      joined.args = {ValueRef{addend}, product.args[0], product.args[1]};
      replaced[static_cast<std::size_t>(id)] = std::move(joined);
      absorbed[static_cast<std::size_t>(value.producer)] = true;
      break;
    }
  }
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (absorbed[i]) continue;
    nodes.push_back(replaced[i] ? std::move(*replaced[i]) : program.nodes[i]);
  }
  replace_nodes(program, std::move(nodes));
  return program;
}

}  // namespace tesser::runtime
