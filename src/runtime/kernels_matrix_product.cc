// Matrix products in float32 by oneDNN's inner product, which PyTorch has as mkldnn::_linear_pointwise. It reaches the
// processor's peak also on makers' processors where the BLAS that PyTorch ships does not. Choices depend on shapes and
// strides alone, so they are the same in every run.
#include <memory>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "kernels/transpose.h"
#include "runtime/kernels.h"
#include "runtime/passes/passes.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::Program;
using graph::value_argument;
using graph::ValueId;

bool is_float_matrix(const Program& program, ValueId id) {
  return id != kNone && program.value(id).dtype == DType::kFloat32 && program.value(id).shape.size() == 2;
}

// left[M, K] times weight[N, K]', plus an addend: a row [N], or a matrix [M, N]. The weight may be packed.
class InnerProduct {
 public:
  InnerProduct()
      : product_(c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""})),
        product_and_sum_(c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", "binary"})) {}

  bool available() const { return product_.has_value() && product_and_sum_.has_value(); }

  at::Tensor operator()(const at::Tensor& left, const at::Tensor& weight, const at::Tensor& addend) {
    stack_.clear();
    stack_.emplace_back(left);
    const bool matrix = addend.defined() && addend.dim() == 2;
    if (matrix) stack_.emplace_back(addend);
    stack_.emplace_back(weight);
    stack_.emplace_back(addend.defined() && !matrix ? c10::IValue(addend) : c10::IValue());
    if (matrix) {
      stack_.emplace_back(std::string("add"));
    } else {
      stack_.emplace_back(std::string("none"));
      stack_.emplace_back(c10::List<std::optional<at::Scalar>>());
      stack_.emplace_back(std::string());
    }
    (matrix ? product_and_sum_ : product_)->callBoxed(stack_);
    at::Tensor result = std::move(stack_.front()).toTensor();
    stack_.clear();
    return result;
  }

 private:
  std::optional<c10::OperatorHandle> product_;
  std::optional<c10::OperatorHandle> product_and_sum_;
  torch::jit::Stack stack_;
};

at::Tensor transposed_copy(const at::Tensor& matrix) {
  const std::int64_t rows = matrix.size(0);
  const std::int64_t columns = matrix.size(1);
  at::Tensor copy = at::empty({columns, rows}, matrix.options());
  const auto* from = matrix.const_data_ptr<float>();
  auto* to = copy.mutable_data_ptr<float>();
  at::parallel_for(
      0, columns, std::max<std::int64_t>(16, 16 * 1024 / std::max<std::int64_t>(rows, 1)),
      [&](std::int64_t begin, std::int64_t end) { kernels::transpose(from, to, rows, columns, begin, end); });
  return copy;
}

// aten::mm and aten::addmm.
class MatrixProduct {
 public:
  MatrixProduct(ValueId left, ValueId right, ValueId addend, ValueId output)
      : left_(left), right_(right), addend_(addend), output_(output) {}

  void operator()(Registers& registers) {
    at::Tensor left = read(registers, left_);
    const at::Tensor right = read(registers, right_);
    const at::Tensor addend = read(registers, addend_);
    at::Tensor& output = registers[static_cast<std::size_t>(output_)];
    if (!suits_inner_product(left, right, addend)) {
      output = addend.defined() ? at::addmm(addend, left, right) : at::mm(left, right);
      return;
    }
    if (left.stride(1) != 1) left = transposed_copy(left.t());
    output = product_(left, right.t(), addend);
  }

 private:
  bool suits_inner_product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& addend) const {
    const std::int64_t m = left.size(0);
    const std::int64_t k = left.size(1);
    const std::int64_t n = right.size(1);
    if (!product_.available() || m * n * k < kLeastMultiplications || m == 1) return false;
    const bool rows = left.stride(1) == 1 && left.stride(0) == k;
    const bool columns = left.stride(0) == 1 && left.stride(1) == m;
    if (!rows && !(columns && n >= kColumnsWorthTransposing)) return false;
    if (addend.defined()) {
      const bool row = addend.dim() == 1 && addend.size(0) == n;
      const bool matrix = addend.dim() == 2 && addend.size(0) == m && addend.size(1) == n;
      if (!addend.is_contiguous() || (!row && !matrix)) return false;
    }
    return (right.stride(1) == 1 && right.stride(0) == n) || (right.stride(0) == 1 && right.stride(1) == k);
  }

  InnerProduct product_;
  ValueId left_;
  ValueId right_;
  ValueId addend_;
  ValueId output_;
};

Kernel matrix_product(ValueId left, ValueId right, ValueId addend, ValueId output) {
  auto kernel = std::make_shared<MatrixProduct>(left, right, addend, output);
  return [kernel](Registers& registers) { (*kernel)(registers); };
}

// tesser::pack_weight and tesser::packed_product (passes.h). Where oneDNN is missing the packed weight is the weight
// itself.
Kernel pack_weight(ValueId right, std::int64_t rows, ValueId output) {
  const auto reorder = c10::Dispatcher::singleton().findSchema({"mkldnn::_reorder_linear_weight", ""});
  const bool available = InnerProduct().available() && reorder.has_value();
  auto stack = std::make_shared<torch::jit::Stack>();
  return [=](Registers& registers) {
    const at::Tensor matrix = read(registers, right);
    const at::Tensor weight = matrix.is_contiguous() ? transposed_copy(matrix) : matrix.t().contiguous();
    if (!available) {
      registers[static_cast<std::size_t>(output)] = weight;
      return;
    }
    stack->clear();
    stack->emplace_back(weight);
    stack->emplace_back(rows);
    reorder->callBoxed(*stack);
    registers[static_cast<std::size_t>(output)] = std::move(stack->front()).toTensor();
    stack->clear();
  };
}

Kernel packed_product(ValueId left, ValueId packed, ValueId addend, ValueId output) {
  auto product = std::make_shared<InnerProduct>();
  return [=](Registers& registers) {
    const at::Tensor rows = read(registers, left).contiguous();
    const at::Tensor sum = addend == kNone ? at::Tensor() : read(registers, addend).contiguous();
    const at::Tensor weight = read(registers, packed);
    at::Tensor& result = registers[static_cast<std::size_t>(output)];
    if (product->available()) {
      result = (*product)(rows, weight, sum);
    } else {
      result = sum.defined() ? at::addmm(sum, rows, weight.t()) : at::mm(rows, weight.t());
    }
  };
}

}  // namespace

Result<Kernel> bind_matrix_product(const Program& program, const Node& node) {
  if (node.outputs.size() != 1 || node.outputs[0] == kNone) return Kernel();
  const ValueId output = node.outputs[0];
  const ValueId first = value_argument(node, 0);
  const ValueId second = value_argument(node, 1);
  if (node.op == "aten::mm" && is_float_matrix(program, first) && is_float_matrix(program, second)) {
    return matrix_product(first, second, kNone, output);
  }
  if (is_plain_addmm(node)) {
    const ValueId right = value_argument(node, 2);
    if (first != kNone && program.value(first).dtype == DType::kFloat32 && is_float_matrix(program, second) &&
        is_float_matrix(program, right)) {
      return matrix_product(second, right, first, output);
    }
  }
  if (node.op == "tesser::pack_weight" && first != kNone && node.args.size() == 2) {
    if (const auto* rows = std::get_if<std::int64_t>(&node.args[1])) return pack_weight(first, *rows, output);
  }
  if (node.op == "tesser::packed_product" && first != kNone && second != kNone && node.args.size() == 3) {
    return packed_product(first, second, value_argument(node, 2), output);
  }
  return Kernel();
}

}  // namespace tesser::runtime
