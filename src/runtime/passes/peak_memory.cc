#include "runtime/passes/peak_memory.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "runtime/passes/passes.h"
#include "runtime/passes/push_gradients.h"

namespace tesser::runtime {
namespace {

std::int64_t transposed_left_bytes(const graph::Program& program, const graph::Node& node) {
  const graph::ValueId left = graph::value_argument(node, 0);
  if (left == graph::kNone) return 0;
  const graph::Value& value = program.value(left);
  if (value.producer == graph::kNone || program.node(value.producer).op != "aten::t") return 0;
  const bool worth = program.value(node.outputs[0]).shape.back() >= kColumnsWorthTransposing;
  return worth && value.dtype == DType::kFloat32 ? value.bytes() : 0;
}

// Pooling's derivative follows the order of its gradient. One that comes out of a matrix or of dropout is row-major:
// the indices are then brought into that order, and the result is made in it before it is brought into the input's.
std::int64_t pooling_scratch_bytes(const graph::Program& program, const graph::Node& node) {
  const graph::ValueId gradient = graph::value_argument(node, 0);
  if (gradient == graph::kNone || node.outputs[0] == graph::kNone) return 0;
  const graph::Value& value = program.value(gradient);
  if (value.producer == graph::kNone || value.shape.size() != 4 || value.shape[1] == 1) return 0;
  const std::string& op = program.node(value.producer).op;
  if (!op.ends_with("view") && op.rfind("tesser::dropout", 0) != 0) return 0;
  return program.value(node.outputs[0]).bytes() + value.elements() * static_cast<std::int64_t>(sizeof(std::int64_t));
}

// Matrix products bring a transposed left operand into rows. oneDNN's convolutions bring the weight into a blocked
// order of their own at every call; the backward one does so with the weight's gradient too.
std::int64_t kernel_scratch_bytes(const graph::Program& program, const graph::Node& node) {
  if (node.op == "aten::max_pool2d_with_indices_backward") return pooling_scratch_bytes(program, node);
  if (node.op == "aten::mm") return transposed_left_bytes(program, node);
  const bool forward = node.op == "aten::convolution";
  if (!forward && node.op != "aten::convolution_backward") return 0;
  const std::size_t position = forward ? 1 : 2;
  const auto* weight = position < node.args.size() ? std::get_if<graph::ValueRef>(&node.args[position]) : nullptr;
  if (weight == nullptr || weight->id == graph::kNone) return 0;
  const std::int64_t weight_copies = program.value(weight->id).bytes() * (forward ? 1 : 2);
  // A batch value comes row-major and is brought into channels-last order too.
  const auto* input = std::get_if<graph::ValueRef>(&node.args[position - 1]);
  if (input == nullptr || input->id == graph::kNone) return weight_copies;
  const graph::Value& image = program.value(input->id);
  const bool copied = image.producer == graph::kNone && image.shape.size() == 4 && image.shape[1] > 1;
  return weight_copies + (copied ? image.bytes() : 0);
}

}  // namespace

memory::MemoryPrediction predict_step_memory(const graph::Program& prepared) {
  memory::MemoryPrediction prediction = memory::predict(prepared);
  memory::Liveness liveness = memory::analyze_liveness(prepared);
  std::erase_if(liveness.storages, [&](const memory::Storage& storage) {
    const graph::NodeId producer = prepared.value(storage.owner).producer;  // buffers of an exchange lie elsewhere
    return producer != graph::kNone && prepared.node(producer).op == "tesser::open";
  });
  const std::vector<graph::ValueId> in_hub = gradient_storages(prepared, liveness);
  std::erase_if(liveness.storages, [&](const memory::Storage& storage) {
    return std::find(in_hub.begin(), in_hub.end(), storage.owner) != in_hub.end();
  });
  std::vector<memory::Block> blocks = memory::arena_blocks(liveness);
  for (graph::NodeId id = 0; id < static_cast<graph::NodeId>(prepared.nodes.size()); ++id) {
    const std::int64_t bytes = kernel_scratch_bytes(prepared, prepared.node(id));
    if (bytes > 0) blocks.push_back({bytes, id, id, memory::kArenaAlignment});
  }
  prediction.arena_bytes = memory::place(blocks).total;
  prediction.peak_bytes = prediction.state_bytes + prediction.arena_bytes;
  return prediction;
}

}  // namespace tesser::runtime
