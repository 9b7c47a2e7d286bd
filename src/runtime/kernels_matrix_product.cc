// Matrix products in float32 by oneDNN's inner product, which PyTorch has as mkldnn::_linear_pointwise. It reaches the
// processor's peak also on makers' processors where the BLAS that PyTorch ships does not. Choices depend on shapes and
// strides alone, so they are the same in every run. Products with an operand that many share have a kernel of our own.
#include <memory>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "kernels/packed_product.h"
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

// Elements that a thread should have to copy at least.
constexpr std::int64_t kLeastElements = 1 << 15;

// How many parts of `each` are worth a thread of their own.
std::int64_t share_of(std::int64_t each, std::int64_t least) {
  return std::max<std::int64_t>(1, least / std::max<std::int64_t>(each, 1));
}

// left[M, K] times weight[N, K]', plus an addend: a row [N], or a matrix [M, N].
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

// tesser::pack_weight and tesser::packed_product (passes.h). A processor without their kernel keeps the operand as it
// is.
Kernel pack_weight(ValueId right, ValueId output) {
  return [=](Registers& registers) {
    const at::Tensor matrix = read(registers, right);
    at::Tensor& packed = registers[static_cast<std::size_t>(output)];
    const bool rows = matrix.is_contiguous();
    if (!kernels::has_fast_packed_product()) {
      packed = matrix;
      return;
    }
    const at::Tensor dense = rows || matrix.t().is_contiguous() ? matrix : matrix.contiguous();
    const std::int64_t depth = dense.size(0);
    const std::int64_t columns = dense.size(1);
    const std::int64_t panels = kernels::panel_count(columns);
    packed = at::empty({panels, depth, kernels::kPanelColumns}, dense.options());
    const auto* from = dense.const_data_ptr<float>();
    auto* to = packed.mutable_data_ptr<float>();
    at::parallel_for(0, panels, share_of(depth * kernels::kPanelColumns, kLeastElements),
                     [&](std::int64_t begin, std::int64_t end) {
                       kernels::pack_panels(from, !dense.is_contiguous(), depth, columns, to, begin, end);
                     });
  };
}

Kernel packed_product(ValueId left, ValueId packed, ValueId addend, std::int64_t columns, ValueId output) {
  return [=](Registers& registers) {
    const at::Tensor rows = read(registers, left);
    const at::Tensor weight = read(registers, packed);
    const at::Tensor sum = read(registers, addend);
    at::Tensor& result = registers[static_cast<std::size_t>(output)];
    if (!kernels::has_fast_packed_product()) {
      result = sum.defined() ? at::addmm(sum, rows, weight) : at::mm(rows, weight);
      return;
    }
    result = at::empty({rows.size(0), columns}, rows.options());
    kernels::PackedProduct product;
    product.left = rows.const_data_ptr<float>();
    product.left_pitch = rows.stride(0);
    product.packed = weight.const_data_ptr<float>();
    if (sum.defined()) {
      product.addend = sum.const_data_ptr<float>();
      product.addend_pitch = sum.dim() == 2 ? sum.stride(0) : 0;
    }
    product.result = result.mutable_data_ptr<float>();
    product.rows = rows.size(0);
    product.depth = rows.size(1);
    product.columns = columns;
    at::parallel_for(0, weight.size(0),
                     share_of(product.rows * product.depth * kernels::kPanelColumns, kLeastMultiplications),
                     [&](std::int64_t begin, std::int64_t end) { kernels::packed_product(product, begin, end); });
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
  if (node.op == "tesser::pack_weight" && first != kNone) return pack_weight(first, output);
  if (node.op == "tesser::packed_product" && first != kNone && second != kNone && node.args.size() == 3) {
    return packed_product(first, second, value_argument(node, 2), program.value(output).shape[1], output);
  }
  return Kernel();
}

}  // namespace tesser::runtime
