// aten operators that have a better way here than their ATen kernel: views whatever the layout, and matrix products by
// oneDNN.
#include <memory>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/reshape.h>

#include "runtime/kernels.h"

namespace tesser::runtime {
namespace {

using graph::Node;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;

const at::Tensor& read(const Registers& registers, ValueId id) { return registers[static_cast<std::size_t>(id)]; }

ValueId value_argument(const Node& node, std::size_t index) {
  const auto* reference = index < node.args.size() ? std::get_if<ValueRef>(&node.args[index]) : nullptr;
  return reference == nullptr ? graph::kNone : reference->id;
}

bool is_default_number(const Node& node, std::size_t index, double expected) {
  if (index >= node.args.size()) return true;
  if (const auto* value = std::get_if<double>(&node.args[index])) return *value == expected;
  if (const auto* value = std::get_if<std::int64_t>(&node.args[index])) return static_cast<double>(*value) == expected;
  return false;
}

// Matrix product with float32 operands. oneDNN's inner product reaches the processor's peak for left operands whose
// rows lie whole in memory, on makers' processors where the BLAS that PyTorch ships does not; a transposed left operand
// (weight gradients) is better off with the BLAS. The choice depends on shapes and strides alone, so it is the same in
// every run.
class MatrixProduct {
 public:
  MatrixProduct(ValueId left, ValueId right, ValueId bias, ValueId output)
      : handle_(c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""})),
        left_(left),
        right_(right),
        bias_(bias),
        output_(output) {}

  void operator()(Registers& registers) {
    const at::Tensor& left = read(registers, left_);
    const at::Tensor& right = read(registers, right_);
    at::Tensor bias;
    if (bias_ != graph::kNone) bias = read(registers, bias_);
    registers[static_cast<std::size_t>(output_)] = suits_inner_product(left, right, bias)
                                                       ? inner_product(left, right, bias)
                                                   : bias.defined() ? at::addmm(bias, left, right)
                                                                    : at::mm(left, right);
  }

 private:
  bool suits_inner_product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias) const {
    constexpr std::int64_t kSmallestProduct =
        1 << 18;  // multiplications; below, looking up the primitive costs more than it gains
    const std::int64_t m = left.size(0);
    const std::int64_t k = left.size(1);
    const std::int64_t n = right.size(1);
    if (!handle_ || m * n * k < kSmallestProduct || m == 1) return false;
    if (left.stride(1) != 1 || left.stride(0) != k) return false;
    if (bias.defined() && (bias.dim() != 1 || bias.size(0) != n || !bias.is_contiguous())) return false;
    return (right.stride(1) == 1 && right.stride(0) == n) || (right.stride(0) == 1 && right.stride(1) == k);
  }

  at::Tensor inner_product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias) {
    stack_.clear();
    stack_.emplace_back(left);
    stack_.emplace_back(right.t());
    stack_.emplace_back(bias.defined() ? c10::IValue(bias) : c10::IValue());
    stack_.emplace_back(std::string("none"));
    stack_.emplace_back(c10::List<std::optional<at::Scalar>>());
    stack_.emplace_back(std::string());
    handle_->callBoxed(stack_);
    at::Tensor result = std::move(stack_.front()).toTensor();
    stack_.clear();
    return result;
  }

  std::optional<c10::OperatorHandle> handle_;
  ValueId left_;
  ValueId right_;
  ValueId bias_;
  ValueId output_;
  torch::jit::Stack stack_;
};

Kernel matrix_product(ValueId left, ValueId right, ValueId bias, ValueId output) {
  auto kernel = std::make_shared<MatrixProduct>(left, right, bias, output);
  return [kernel](Registers& registers) { (*kernel)(registers); };
}

bool is_float_matrix(const Program& program, ValueId id) {
  return id != graph::kNone && program.value(id).dtype == DType::kFloat32 && program.value(id).shape.size() == 2;
}

}  // namespace

Result<Kernel> bind_specialized_operator(const Program& program, const Node& node) {
  if (node.outputs.size() != 1 || node.outputs[0] == graph::kNone) return Kernel();
  const ValueId output = node.outputs[0];
  const ValueId first = value_argument(node, 0);
  const ValueId second = value_argument(node, 1);
  if ((node.op == "aten::view" || node.op == "aten::_unsafe_view" || node.op == "aten::reshape") &&
      first != graph::kNone) {
    // Shapes of a program are logical (docs/formats/program.md); where the layout forbids a view, reshape copies.
    const Shape shape = program.value(output).shape;
    return Kernel([=](Registers& registers) {
      registers[static_cast<std::size_t>(output)] = at::reshape(read(registers, first), shape);
    });
  }
  if (node.op == "aten::mm" && is_float_matrix(program, first) && is_float_matrix(program, second)) {
    return matrix_product(first, second, graph::kNone, output);
  }
  if (node.op == "aten::addmm" && is_default_number(node, 3, 1) && is_default_number(node, 4, 1)) {
    const ValueId right = value_argument(node, 2);
    if (first != graph::kNone && program.value(first).dtype == DType::kFloat32 && is_float_matrix(program, second) &&
        is_float_matrix(program, right)) {
      return matrix_product(second, right, first, output);
    }
  }
  return Kernel();
}

}  // namespace tesser::runtime
