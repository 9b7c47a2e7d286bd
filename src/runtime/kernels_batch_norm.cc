// Batch normalisation of channels-last activations over src/kernels/batch_norm.h. ATen's own channels-last kernels add
// up in float32 alone, which costs up to two digits of the statistics; row-major activations and everything else go to
// ATen.
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "kernels/batch_norm.h"
#include "runtime/kernels.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::number_argument;
using graph::Program;
using graph::value_argument;
using graph::ValueId;

// A 4-d tensor of which each position's channels lie together, and which is not row-major as well.
bool is_channels_last(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.scalar_type() == at::kFloat && tensor.size(1) > 1 &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_contiguous() && tensor.numel() > 0;
}

// Calls function(part, memory of its own for `doubles` doubles) for each part, and adds the memories up, part after
// part.
template <typename Function>
std::vector<double> sum_over_parts(const kernels::RowParts& parts, std::int64_t doubles, const Function& function) {
  std::vector<double> sums(static_cast<std::size_t>(parts.count * doubles));
  at::parallel_for(0, parts.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) function(part, sums.data() + part * doubles);
  });
  for (std::int64_t part = 1; part < parts.count; ++part) {
    for (std::int64_t k = 0; k < doubles; ++k) {
      sums[static_cast<std::size_t>(k)] += sums[static_cast<std::size_t>(part * doubles + k)];
    }
  }
  sums.resize(static_cast<std::size_t>(doubles));
  return sums;
}

struct Forward {
  ValueId x, weight, bias, running_mean, running_var;
  double momentum, eps;
  std::vector<ValueId> outputs;  // y, mean, inverse deviation, running mean, running variance

  void operator()(Registers& registers) const {
    const at::Tensor input = read(registers, x);
    const std::int64_t channels = input.size(1);
    const std::int64_t rows = input.numel() / channels;
    const auto* from = input.const_data_ptr<float>();
    const kernels::RowParts parts(rows);
    const std::vector<double> sums = sum_over_parts(parts, channels, [&](std::int64_t part, double* memory) {
      kernels::batch_norm_sums(from, parts.begin(part), parts.end(part), channels, memory);
    });
    at::Tensor mean = at::empty({channels}, input.options().memory_format(at::MemoryFormat::Contiguous));
    auto* means = mean.mutable_data_ptr<float>();
    for (std::int64_t c = 0; c < channels; ++c) {
      means[c] = static_cast<float>(sums[static_cast<std::size_t>(c)] / static_cast<double>(rows));
    }
    const std::vector<double> squares = sum_over_parts(parts, channels, [&](std::int64_t part, double* memory) {
      kernels::batch_norm_square_sums(from, means, parts.begin(part), parts.end(part), channels, memory);
    });
    at::Tensor inverse = at::empty_like(mean);
    at::Tensor next_mean = at::empty_like(mean);
    at::Tensor next_var = at::empty_like(mean);
    std::vector<float> scale(static_cast<std::size_t>(channels));
    std::vector<float> shift(static_cast<std::size_t>(channels));
    const at::Tensor gamma = read(registers, weight);
    const at::Tensor beta = read(registers, bias);
    const at::Tensor old_mean = read(registers, running_mean);
    const at::Tensor old_var = read(registers, running_var);
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const double variance = squares[at] / static_cast<double>(rows);
      const double deviation = 1 / std::sqrt(variance + eps);
      inverse.mutable_data_ptr<float>()[c] = static_cast<float>(deviation);
      const double factor = gamma.defined() ? deviation * gamma.const_data_ptr<float>()[c] : deviation;
      scale[at] = static_cast<float>(factor);
      shift[at] = static_cast<float>((beta.defined() ? beta.const_data_ptr<float>()[c] : 0.0) -
                                     sums[at] / static_cast<double>(rows) * static_cast<double>(scale[at]));
      const double unbiased = squares[at] / static_cast<double>(rows - 1);
      next_mean.mutable_data_ptr<float>()[c] = static_cast<float>(momentum * (sums[at] / static_cast<double>(rows)) +
                                                                  (1 - momentum) * old_mean.const_data_ptr<float>()[c]);
      next_var.mutable_data_ptr<float>()[c] =
          static_cast<float>(momentum * unbiased + (1 - momentum) * old_var.const_data_ptr<float>()[c]);
    }
    at::Tensor result = at::empty_like(input);
    auto* to = result.mutable_data_ptr<float>();
    at::parallel_for(0, parts.count, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels::batch_norm_apply(from, scale.data(), shift.data(), to, parts.begin(begin), parts.begin(end), channels);
    });
    write(registers, outputs[0], std::move(result));
    write(registers, outputs[1], std::move(mean));
    write(registers, outputs[2], std::move(inverse));
    write(registers, outputs[3], std::move(next_mean));
    write(registers, outputs[4], std::move(next_var));
  }
};

struct Backward {
  ValueId dy, x, weight, mean, inverse;
  std::vector<ValueId> outputs;  // dx, dweight, dbias

  void operator()(Registers& registers) const {
    const at::Tensor gradient = read(registers, dy).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor input = read(registers, x);
    const std::int64_t channels = input.size(1);
    const std::int64_t rows = input.numel() / channels;
    const auto* gradients = gradient.const_data_ptr<float>();
    const auto* from = input.const_data_ptr<float>();
    const at::Tensor saved_mean = read(registers, mean);
    const at::Tensor saved_inverse = read(registers, inverse);
    const auto* means = saved_mean.const_data_ptr<float>();
    const auto* inverses = saved_inverse.const_data_ptr<float>();
    const at::Tensor gamma = read(registers, weight);
    const kernels::RowParts parts(rows);
    const std::vector<double> sums = sum_over_parts(parts, 2 * channels, [&](std::int64_t part, double* memory) {
      kernels::batch_norm_gradient_sums(gradients, from, means, parts.begin(part), parts.end(part), channels, memory,
                                        memory + channels);
    });
    const at::TensorOptions options = input.options().memory_format(at::MemoryFormat::Contiguous);
    if (outputs[1] != kNone) {
      at::Tensor dweight = at::empty({channels}, options);
      for (std::int64_t c = 0; c < channels; ++c) {
        dweight.mutable_data_ptr<float>()[c] =
            static_cast<float>(sums[static_cast<std::size_t>(channels + c)] * static_cast<double>(inverses[c]));
      }
      write(registers, outputs[1], std::move(dweight));
    }
    if (outputs[2] != kNone) {
      at::Tensor dbias = at::empty({channels}, options);
      for (std::int64_t c = 0; c < channels; ++c) {
        dbias.mutable_data_ptr<float>()[c] = static_cast<float>(sums[static_cast<std::size_t>(c)]);
      }
      write(registers, outputs[2], std::move(dbias));
    }
    if (outputs[0] == kNone) return;
    std::vector<float> mean_dy(static_cast<std::size_t>(channels));
    std::vector<float> slope(static_cast<std::size_t>(channels));
    std::vector<float> scale(static_cast<std::size_t>(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const double deviation = inverses[c];
      mean_dy[at] = static_cast<float>(sums[at] / static_cast<double>(rows));
      slope[at] = static_cast<float>(sums[at + static_cast<std::size_t>(channels)] * deviation * deviation /
                                     static_cast<double>(rows));
      scale[at] = static_cast<float>(gamma.defined() ? deviation * gamma.const_data_ptr<float>()[c] : deviation);
    }
    at::Tensor dx = at::empty_like(input);
    auto* to = dx.mutable_data_ptr<float>();
    at::parallel_for(0, parts.count, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels::batch_norm_gradient_apply(gradients, from, means, mean_dy.data(), slope.data(), scale.data(), to,
                                         parts.begin(begin), parts.begin(end), channels);
    });
    write(registers, outputs[0], std::move(dx));
  }
};

bool flag_argument(const Node& node, std::size_t index) {
  const auto* flag = index < node.args.size() ? std::get_if<bool>(&node.args[index]) : nullptr;
  return flag != nullptr && *flag;
}

}  // namespace

Result<Kernel> bind_batch_norm(const Program& program, const Node& node) {
  if (node.op == "aten::_native_batch_norm_legit_functional" && flag_argument(node, 5) && node.outputs.size() == 5) {
    const auto momentum = number_argument(node, 6);
    const auto eps = number_argument(node, 7);
    const ValueId running_mean = value_argument(node, 3);
    const ValueId running_var = value_argument(node, 4);
    if (!momentum || !eps || running_mean == kNone || running_var == kNone) return Kernel();
    const Forward forward{value_argument(node, 0),
                          value_argument(node, 1),
                          value_argument(node, 2),
                          running_mean,
                          running_var,
                          *momentum,
                          *eps,
                          node.outputs};
    TESSER_ASSIGN_OR_RETURN(Kernel fallback, bind_aten_operator(program, node));
    return Kernel([=](Registers& registers) {
      const at::Tensor& x = registers[static_cast<std::size_t>(forward.x)];
      // One row has no unbiased variance; ATen says what it makes of that.
      is_channels_last(x) && x.numel() > x.size(1) ? forward(registers) : fallback(registers);
    });
  }
  if (node.op == "aten::native_batch_norm_backward" && flag_argument(node, 7) && node.outputs.size() == 3) {
    const Backward backward{value_argument(node, 0), value_argument(node, 1), value_argument(node, 2),
                            value_argument(node, 5), value_argument(node, 6), node.outputs};
    if (backward.mean == kNone || backward.inverse == kNone) return Kernel();
    TESSER_ASSIGN_OR_RETURN(Kernel fallback, bind_aten_operator(program, node));
    return Kernel([=](Registers& registers) {
      is_channels_last(registers[static_cast<std::size_t>(backward.x)]) ? backward(registers) : fallback(registers);
    });
  }
  return Kernel();
}

}  // namespace tesser::runtime
