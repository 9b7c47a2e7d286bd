// The steps of batch normalisation that can be cut over the batch (docs/formats/operators.md), over
// src/kernels/batch_norm_parts.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "kernels/batch_norm_parts.h"
#include "runtime/argument_reader.h"
#include "runtime/kernels.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::ValueId;

constexpr std::int64_t kElements = 64 * 1024;  // a thread takes at least
constexpr std::int64_t kMostParts = 64;        // of a sum; the same for every number of threads

// An activation [N, C, ...] as the kernels take it.
struct Activation {
  at::Tensor tensor;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  kernels::BatchNormShape shape;
  std::int64_t outer = 0;

  // Of `x`, in the layout it has: channels-last or row-major.
  explicit Activation(const at::Tensor& x) {
    TORCH_CHECK(x.dim() >= 2, "batch normalisation takes [N, C, ...], not ", x.sizes());
    if (x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast)) format = at::MemoryFormat::ChannelsLast;
    if (x.dim() == 5 && x.is_contiguous(at::MemoryFormat::ChannelsLast3d)) format = at::MemoryFormat::ChannelsLast3d;
    tensor = x.contiguous(format);
    const std::int64_t positions = x.numel() == 0 ? 0 : x.numel() / (x.size(0) * x.size(1));
    shape.channels = x.size(1);
    shape.inner = format == at::MemoryFormat::Contiguous ? positions : 1;
    outer = format == at::MemoryFormat::Contiguous ? x.size(0) : x.size(0) * positions;
    if (x.numel() == 0) outer = 0;
  }
  std::int64_t row_elements() const { return std::max<std::int64_t>(1, shape.channels * shape.inner); }
  std::int64_t grain() const { return std::max<std::int64_t>(1, kElements / row_elements()); }
};

void check_channels(const at::Tensor& vector, std::int64_t channels, at::ScalarType type) {
  TORCH_CHECK(!vector.defined() || (vector.numel() == channels && vector.scalar_type() == type),
              "batch normalisation takes a ", type, " for each of ", channels, " channels");
}

// Sums in parts of `outer` that depend on the shape alone, added up in order: two float64 tensors of [C].
template <typename Function>
std::pair<at::Tensor, at::Tensor> two_sums(const Activation& x, const Function& function) {
  const std::int64_t channels = x.shape.channels;
  const std::int64_t rows_each = std::max(x.grain(), (x.outer + kMostParts - 1) / kMostParts);
  const std::int64_t parts = std::max<std::int64_t>(1, (x.outer + rows_each - 1) / rows_each);
  const at::Tensor sums = at::zeros({parts, 2, channels}, at::TensorOptions(at::kDouble));
  auto* memory = sums.mutable_data_ptr<double>();
  at::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      double* target = memory + part * 2 * channels;
      function(part * rows_each, std::min((part + 1) * rows_each, x.outer), target, target + channels);
    }
  });
  for (std::int64_t part = 1; part < parts; ++part) {
    for (std::int64_t k = 0; k < 2 * channels; ++k) memory[k] += memory[part * 2 * channels + k];
  }
  at::Tensor first = at::empty({channels}, sums.options());
  at::Tensor second = at::empty({channels}, sums.options());
  std::copy_n(memory, channels, first.mutable_data_ptr<double>());
  std::copy_n(memory + channels, channels, second.mutable_data_ptr<double>());
  return {std::move(first), std::move(second)};
}

Result<Kernel> bind_sums(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId x = arguments.value();
  TESSER_RETURN_IF_ERROR(arguments.check(2));
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const Activation input(read(registers, x));
    for_real_type(input.tensor, [&]<typename T>() {
      auto [sum, square_sum] =
          two_sums(input, [&](std::int64_t begin, std::int64_t end, double* sums, double* squares) {
            kernels::batch_norm_part_sums(input.tensor.const_data_ptr<T>(), input.shape, begin, end, sums, squares);
          });
      write(registers, outputs[0], std::move(sum));
      write(registers, outputs[1], std::move(square_sum));
    });
  });
}

Result<Kernel> bind_statistics(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId sum = arguments.value();
  const ValueId square_sum = arguments.value();
  const ValueId running_mean = arguments.optional_value();
  const ValueId running_var = arguments.optional_value();
  const auto count = static_cast<double>(arguments.integer());
  const double momentum = arguments.number();
  const double eps = arguments.number();
  TESSER_RETURN_IF_ERROR(arguments.check(4));
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor sums = read(registers, sum);
    const at::Tensor square_sums = read(registers, square_sum);
    const at::Tensor old_mean = read(registers, running_mean);
    const at::Tensor old_var = read(registers, running_var);
    const std::int64_t channels = sums.numel();
    const at::ScalarType type = old_mean.defined() ? old_mean.scalar_type() : at::kFloat;
    check_channels(old_mean, channels, type);
    check_channels(old_var, channels, type);
    check_channels(square_sums, channels, at::kDouble);
    const auto make = [&] { return at::empty({channels}, at::TensorOptions(type)); };
    at::Tensor mean = make();
    at::Tensor rstd = make();
    at::Tensor new_mean = old_mean.defined() ? make() : at::Tensor();
    at::Tensor new_var = old_var.defined() ? make() : at::Tensor();
    for_real_type(mean, [&]<typename T>() {
      for (std::int64_t c = 0; c < channels; ++c) {
        const double middle = sums.const_data_ptr<double>()[c] / count;
        const double variance = std::max(square_sums.const_data_ptr<double>()[c] / count - middle * middle, 0.0);
        mean.mutable_data_ptr<T>()[c] = static_cast<T>(middle);
        rstd.mutable_data_ptr<T>()[c] = static_cast<T>(1 / std::sqrt(variance + eps));
        if (old_mean.defined()) {
          new_mean.mutable_data_ptr<T>()[c] =
              static_cast<T>(momentum * middle + (1 - momentum) * old_mean.const_data_ptr<T>()[c]);
        }
        if (old_var.defined()) {
          const double unbiased = count > 1 ? variance * count / (count - 1) : std::numeric_limits<double>::quiet_NaN();
          new_var.mutable_data_ptr<T>()[c] =
              static_cast<T>(momentum * unbiased + (1 - momentum) * old_var.const_data_ptr<T>()[c]);
        }
      }
    });
    write(registers, outputs[0], std::move(mean));
    write(registers, outputs[1], std::move(rstd));
    write(registers, outputs[2], std::move(new_mean));
    write(registers, outputs[3], std::move(new_var));
  });
}

// rstd * weight of each channel, in x's type.
template <typename T>
std::vector<T> scales(const at::Tensor& weight, const at::Tensor& rstd) {
  std::vector<T> scale(static_cast<std::size_t>(rstd.numel()));
  for (std::size_t c = 0; c < scale.size(); ++c) {
    const double deviation = rstd.const_data_ptr<T>()[c];
    scale[c] =
        static_cast<T>(weight.defined() ? deviation * static_cast<double>(weight.const_data_ptr<T>()[c]) : deviation);
  }
  return scale;
}

Result<Kernel> bind_apply(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId x = arguments.value();
  const ValueId weight = arguments.optional_value();
  const ValueId bias = arguments.optional_value();
  const ValueId mean = arguments.value();
  const ValueId rstd = arguments.value();
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    const Activation input(read(registers, x));
    const at::Tensor gamma = read(registers, weight);
    const at::Tensor beta = read(registers, bias);
    const at::Tensor means = read(registers, mean);
    const at::Tensor deviations = read(registers, rstd);
    for (const at::Tensor& each : {gamma, beta, means, deviations}) {
      check_channels(each, input.shape.channels, input.tensor.scalar_type());
    }
    at::Tensor result = at::empty_like(input.tensor, input.format);
    for_real_type(input.tensor, [&]<typename T>() {
      const std::vector<T> scale = scales<T>(gamma, deviations);
      std::vector<T> shift(scale.size());
      for (std::size_t c = 0; c < scale.size(); ++c) {
        const double moved = -static_cast<double>(means.const_data_ptr<T>()[c]) * static_cast<double>(scale[c]);
        shift[c] = static_cast<T>(beta.defined() ? static_cast<double>(beta.const_data_ptr<T>()[c]) + moved : moved);
      }
      const T* from = input.tensor.const_data_ptr<T>();
      T* to = result.mutable_data_ptr<T>();
      at::parallel_for(0, input.outer, input.grain(), [&](std::int64_t begin, std::int64_t end) {
        kernels::batch_norm_part_apply(from, scale.data(), shift.data(), to, input.shape, begin, end);
      });
    });
    write(registers, output, std::move(result));
  });
}

Result<Kernel> bind_backward_sums(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId dy = arguments.value();
  const ValueId x = arguments.value();
  const ValueId mean = arguments.value();
  const ValueId rstd = arguments.value();
  TESSER_RETURN_IF_ERROR(arguments.check(2));
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const Activation input(read(registers, x));
    const at::Tensor gradient = read(registers, dy).contiguous(input.format);
    const at::Tensor means = read(registers, mean);
    const at::Tensor deviations = read(registers, rstd);
    TORCH_CHECK(gradient.sizes() == input.tensor.sizes(), "the gradient has shape ", gradient.sizes());
    check_channels(means, input.shape.channels, input.tensor.scalar_type());
    check_channels(deviations, input.shape.channels, input.tensor.scalar_type());
    for_real_type(input.tensor, [&]<typename T>() {
      auto [sum, product] = two_sums(input, [&](std::int64_t begin, std::int64_t end, double* sums, double* products) {
        kernels::batch_norm_part_gradient_sums(gradient.const_data_ptr<T>(), input.tensor.const_data_ptr<T>(),
                                               means.const_data_ptr<T>(), input.shape, begin, end, sums, products);
      });
      for (std::int64_t c = 0; c < input.shape.channels; ++c) {
        product.template mutable_data_ptr<double>()[c] *= static_cast<double>(deviations.const_data_ptr<T>()[c]);
      }
      write(registers, outputs[0], std::move(sum));
      write(registers, outputs[1], std::move(product));
    });
  });
}

Result<Kernel> bind_backward_apply(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId dy = arguments.value();
  const ValueId x = arguments.value();
  const ValueId weight = arguments.optional_value();
  const ValueId mean = arguments.value();
  const ValueId rstd = arguments.value();
  const ValueId sum_dy = arguments.value();
  const ValueId sum_dy_xhat = arguments.value();
  const auto count = static_cast<double>(arguments.integer());
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    const Activation input(read(registers, x));
    const at::Tensor gradient = read(registers, dy).contiguous(input.format);
    const at::Tensor gamma = read(registers, weight);
    const at::Tensor means = read(registers, mean);
    const at::Tensor deviations = read(registers, rstd);
    const at::Tensor sums = read(registers, sum_dy);
    const at::Tensor products = read(registers, sum_dy_xhat);
    TORCH_CHECK(gradient.sizes() == input.tensor.sizes(), "the gradient has shape ", gradient.sizes());
    for (const at::Tensor& each : {gamma, means, deviations}) {
      check_channels(each, input.shape.channels, input.tensor.scalar_type());
    }
    check_channels(sums, input.shape.channels, at::kDouble);
    check_channels(products, input.shape.channels, at::kDouble);
    at::Tensor dx = at::empty_like(input.tensor, input.format);
    for_real_type(input.tensor, [&]<typename T>() {
      const std::vector<T> scale = scales<T>(gamma, deviations);
      std::vector<T> mean_dy(scale.size());
      std::vector<T> slope(scale.size());
      for (std::size_t c = 0; c < scale.size(); ++c) {
        mean_dy[c] = static_cast<T>(sums.const_data_ptr<double>()[c] / count);
        slope[c] = static_cast<T>(products.const_data_ptr<double>()[c] *
                                  static_cast<double>(deviations.const_data_ptr<T>()[c]) / count);
      }
      at::parallel_for(0, input.outer, input.grain(), [&](std::int64_t begin, std::int64_t end) {
        kernels::batch_norm_part_gradient_apply(gradient.const_data_ptr<T>(), input.tensor.const_data_ptr<T>(),
                                                means.const_data_ptr<T>(), mean_dy.data(), slope.data(), scale.data(),
                                                dx.mutable_data_ptr<T>(), input.shape, begin, end);
      });
    });
    write(registers, output, std::move(dx));
  });
}

}  // namespace

Result<Kernel> bind_batch_norm_part(const graph::Program&, const Node& node) {
  if (node.op == "tesser::batch_norm_sums") return bind_sums(node);
  if (node.op == "tesser::batch_norm_statistics") return bind_statistics(node);
  if (node.op == "tesser::batch_norm_apply") return bind_apply(node);
  if (node.op == "tesser::batch_norm_backward_sums") return bind_backward_sums(node);
  if (node.op == "tesser::batch_norm_backward_apply") return bind_backward_apply(node);
  return Kernel();
}

}  // namespace tesser::runtime
