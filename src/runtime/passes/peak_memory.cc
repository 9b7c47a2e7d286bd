#include "runtime/passes/peak_memory.h"

#include <algorithm>
#include <vector>

#include "layout/layouts.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/push_gradients.h"

namespace tesser::runtime {
namespace {

using layout::Layouts;

// Matrix products bring a left operand that lies column by column into rows where the product is wide enough.
std::int64_t transposed_left_bytes(const graph::Program& program, const Layouts& layouts, const graph::Node& node) {
  const graph::ValueId left = graph::value_argument(node, 0);
  if (left == graph::kNone) return 0;
  const graph::Value& value = program.value(left);
  const bool by_columns = value.shape.size() == 2 && layouts[left][0] == 1 && layouts[left][1] == value.shape[0] &&
                          !layout::is_row_major(value.shape, layouts[left]);
  const bool worth = program.value(node.outputs[0]).shape.back() >= kColumnsWorthTransposing;
  return by_columns && worth && value.dtype == DType::kFloat32 ? value.bytes() : 0;
}

// oneDNN's convolutions bring the weight into a blocked order of their own at every call; the backward one does so with
// the weight's gradient too. An image that lies row-major beside a channels-last weight is copied.
std::int64_t convolution_bytes(const graph::Program& program, const Layouts& layouts, graph::ValueId image,
                               graph::ValueId weight, std::int64_t weight_copies) {
  if (image == graph::kNone || weight == graph::kNone) return 0;
  const auto is_channels_last = [&](graph::ValueId id) {
    return layout::suggests_channels_last(program.value(id).shape, layouts[id]);
  };
  const bool copied = is_channels_last(weight) && !is_channels_last(image) && program.value(image).shape[1] > 1;
  return program.value(weight).bytes() * weight_copies + (copied ? program.value(image).bytes() : 0);
}

std::int64_t kernel_scratch_bytes(const graph::Program& program, const Layouts& layouts, const graph::Node& node) {
  const auto value = [&](std::size_t position) { return graph::value_argument(node, position); };
  if (node.op == "aten::mm") return transposed_left_bytes(program, layouts, node);
  if (node.op == "aten::convolution") return convolution_bytes(program, layouts, value(0), value(1), 1);
  if (node.op == "aten::convolution_backward") return convolution_bytes(program, layouts, value(1), value(2), 2);
  return 0;
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
  const Layouts layouts = Layouts::of(prepared);
  for (graph::NodeId id = 0; id < static_cast<graph::NodeId>(prepared.nodes.size()); ++id) {
    const std::int64_t bytes = kernel_scratch_bytes(prepared, layouts, prepared.node(id));
    if (bytes > 0) blocks.push_back({bytes, id, id, memory::kArenaAlignment});
  }
  prediction.arena_bytes = memory::place(blocks).total;
  prediction.peak_bytes = prediction.state_bytes + prediction.arena_bytes;
  return prediction;
}

}  // namespace tesser::runtime
