// Passes from program to program that the executor runs before it binds kernels. Each is a free function; each keeps
// every number the same.
//
// Passes reorder, remove and add nodes. Inputs keep their ValueIds; other values are numbered anew in the order of
// their nodes. Links from backward to forward nodes are dropped, since nodes move.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "layout/layouts.h"

namespace tesser::runtime {

// Multiplications of a matrix product from which oneDNN's inner product gains more than calling it costs.
inline constexpr std::int64_t kLeastMultiplications = 1 << 18;
// Columns of its right operand from which that outweighs bringing a transposed left operand into rows.
inline constexpr std::int64_t kColumnsWorthTransposing = 256;

// The program as an executor runs it: all passes that its options ask for, in their order.
graph::Program prepare(graph::Program program, bool fuse, layout::Weights weights = layout::Weights::kChannelsLast);

// Puts every update (tesser::sgd, tesser::adam) as early as its gradient allows and after every other reader of the
// state it changes, so that gradients live shortly and updates may be done in place.
graph::Program schedule_updates(graph::Program program);

// Joins chains of elementwise float32 operators whose results lie alike into tesser::fused nodes: expression
// (fused_expression.h), inputs, order of the results' dimensions in memory, and with dropout seed and step.
graph::Program fuse_elementwise(graph::Program program, layout::Weights weights = layout::Weights::kChannelsLast);

// Brings arguments into layouts that kernels take (layout/statement.h): tesser::arrange(value, order) -> value, once
// for readers of one phase that stand close together.
graph::Program arrange_arguments(graph::Program program, layout::Weights weights = layout::Weights::kChannelsLast);

// A float32 matrix product whose only reader adds something of its shape to it becomes aten::addmm where the sum
// stands.
graph::Program absorb_sums(graph::Program program);

// Right operands of many matrix products (the weights of an unrolled loop) are brought into panels once
// (kernels/packed_product.h): tesser::pack_weight(right) -> packed, tesser::packed_product(left, packed, addend or
// None). Both exist only between this pass and the kernels.
graph::Program pack_shared_weights(graph::Program program);

// Shared by the passes: how often each value is read (by nodes and as output), and the nodes' order made consistent
// again after an edit.
struct Uses {
  explicit Uses(const graph::Program& program);
  std::vector<std::vector<graph::NodeId>> readers;  // by value, in node order, once each
  std::vector<bool> is_output;                      // by value
};

// Replaces the nodes, drops values that none of them defines, and numbers the rest anew. `nodes` still use the old ids
// and must be in an order in which they can run.
void replace_nodes(graph::Program& program, std::vector<graph::Node> nodes);

bool is_update(const graph::Node& node);
// aten::addmm whose factors beta and alpha are 1.
bool is_plain_addmm(const graph::Node& node);

}  // namespace tesser::runtime
