#include "runtime/passes/peak_memory.h"

#include <variant>
#include <vector>

namespace tesser::runtime {
namespace {

std::int64_t transposed_left_bytes(const graph::Program& program, const graph::Node& node) {
  const auto* left = node.args.empty() ? nullptr : std::get_if<graph::ValueRef>(&node.args[0]);
  if (left == nullptr || left->id == graph::kNone) return 0;
  const graph::Value& value = program.value(left->id);
  if (value.producer == graph::kNone || program.node(value.producer).op != "aten::t") return 0;
  const bool worth = program.value(node.outputs[0]).shape.back() >= 256;  // kColumnsWorthTransposing of the kernels
  return worth && value.dtype == DType::kFloat32 ? value.bytes() : 0;
}

// Matrix products bring a transposed left operand into rows. oneDNN's convolutions bring the weight into a blocked
// order of their own at every call; the backward one does so with the weight's gradient too.
std::int64_t kernel_scratch_bytes(const graph::Program& program, const graph::Node& node) {
  if (node.op == "aten::mm") return transposed_left_bytes(program, node);
  const bool forward = node.op == "aten::convolution";
  if (!forward && node.op != "aten::convolution_backward") return 0;
  const std::size_t position = forward ? 1 : 2;
  const auto* weight = position < node.args.size() ? std::get_if<graph::ValueRef>(&node.args[position]) : nullptr;
  if (weight == nullptr || weight->id == graph::kNone) return 0;
  return program.value(weight->id).bytes() * (forward ? 1 : 2);
}

}  // namespace

memory::MemoryPrediction predict_step_memory(const graph::Program& prepared) {
  memory::MemoryPrediction prediction = memory::predict(prepared);
  std::vector<memory::Block> blocks = memory::arena_blocks(memory::analyze_liveness(prepared));
  for (graph::NodeId id = 0; id < static_cast<graph::NodeId>(prepared.nodes.size()); ++id) {
    const std::int64_t bytes = kernel_scratch_bytes(prepared, prepared.node(id));
    if (bytes > 0) blocks.push_back({bytes, id, id, memory::kArenaAlignment});
  }
  prediction.arena_bytes = memory::place(blocks).total;
  prediction.peak_bytes = prediction.state_bytes + prediction.arena_bytes;
  return prediction;
}

}  // namespace tesser::runtime
