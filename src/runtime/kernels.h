// From a node of a program to a call of a kernel.
//
// Registers hold one tensor a value. A bound node reads its arguments from registers and writes its results to
// registers; everything that can be looked up ahead (schema, constants, choices between implementations) is looked up
// once, when it is bound.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "graph/program.h"

namespace tesser::runtime {

using Registers = std::vector<at::Tensor>;
using Kernel = std::function<void(Registers&)>;

class Exchange;
class GradientExchange;

// What nodes that move tensors between workers share; it must outlive their kernels.
struct Movement {
  GradientExchange* gradients = nullptr;                // none: the program updates its weights itself
  std::int64_t copied_gradient_bytes = 0;               // that kernels had not put where the hub reads them
  Exchange* exchange = nullptr;                         // none: the program runs alone
  std::unordered_map<std::int64_t, at::Tensor> staged;  // by transfer: a copy that is being sent
};

// The tensor of a value; an undefined one for kNone, which stands for an optional argument that is not given.
inline at::Tensor read(const Registers& registers, graph::ValueId id) {
  return id == graph::kNone ? at::Tensor() : registers[static_cast<std::size_t>(id)];
}
// Puts a result in its place; nobody keeps one whose id is kNone.
inline void write(Registers& registers, graph::ValueId id, at::Tensor tensor) {
  if (id != graph::kNone) registers[static_cast<std::size_t>(id)] = std::move(tensor);
}

// Binds one node. kInvalidInput names the node and what is wrong: unknown operator, arguments that do not fit its
// schema, wrong number of results. Kernels throw c10::Error; the executor turns that into a Result.
Result<Kernel> bind_node(const graph::Program& program, const graph::Node& node, Movement& movement);

// Parts of bind_node, each for its own kind of operator; an empty Kernel means "not mine".
Result<Kernel> bind_aten_operator(const graph::Program& program,
                                  const graph::Node& node);  // any operator of PyTorch's dispatcher
Result<Kernel> bind_view(const graph::Program& program, const graph::Node& node);
Result<Kernel> bind_matrix_product(const graph::Program& program, const graph::Node& node);
Result<Kernel> bind_batch_norm(const graph::Program& program, const graph::Node& node);
Result<Kernel> bind_batch_norm_part(const graph::Program& program, const graph::Node& node);
Result<Kernel> bind_random_operator(const graph::Program& program, const graph::Node& node);
Result<Kernel> bind_recurrent_cell(const graph::Program& program, const graph::Node& node);
Result<Kernel> bind_update(const graph::Program& program, const graph::Node& node);
Result<Kernel> bind_movement(const graph::Program& program, const graph::Node& node, Movement& movement);
Result<Kernel> bind_gradients(const graph::Node& node, Movement& movement);
Result<Kernel> bind_fused_operator(const graph::Program& program, const graph::Node& node);

// Whether two tensors have the same type, shape and order of elements in memory.
bool lies_alike(const at::Tensor& left, const at::Tensor& right);
at::ScalarType scalar_type(DType dtype);
// "conv1.weight" -> message prefix "node 'x' (aten::mm, module 'fc', step.py:3)".
std::string describe(const graph::Node& node);

}  // namespace tesser::runtime
