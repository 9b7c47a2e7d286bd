// Recurrent cells and updates (docs/formats/operators.md) over src/kernels and src/optimizer.
#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "kernels/recurrent_cells.h"
#include "optimizer/update.h"
#include "runtime/argument_reader.h"
#include "runtime/kernels.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;

constexpr std::int64_t kGrain = 16 * 1024;  // elements a thread takes at least

std::int64_t row_grain(std::int64_t hidden) {
  return std::max<std::int64_t>(1, 2048 / std::max<std::int64_t>(hidden, 1));
}

Result<Kernel> bind_lstm_cell(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId gates = arguments.value();
  const ValueId c = arguments.value();
  TESSER_RETURN_IF_ERROR(arguments.check(3));
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor g = read(registers, gates);
    const at::Tensor state = read(registers, c);
    at::Tensor h = at::empty(state.sizes(), state.options());
    at::Tensor next = at::empty(state.sizes(), state.options());
    at::Tensor activations = at::empty(g.sizes(), g.options());
    const std::int64_t hidden = state.size(1);
    at::parallel_for(0, state.size(0), row_grain(hidden), [&](std::int64_t begin, std::int64_t end) {
      kernels::lstm_cell(g.const_data_ptr<float>(), state.const_data_ptr<float>(), h.mutable_data_ptr<float>(),
                         next.mutable_data_ptr<float>(), activations.mutable_data_ptr<float>(), begin, end, hidden);
    });
    write(registers, outputs[0], std::move(h));
    write(registers, outputs[1], std::move(next));
    write(registers, outputs[2], std::move(activations));
  });
}

Result<Kernel> bind_lstm_cell_backward(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId dh = arguments.optional_value();
  const ValueId dc_next = arguments.optional_value();
  const ValueId c = arguments.value();
  const ValueId c_next = arguments.value();
  const ValueId activations = arguments.value();
  TESSER_RETURN_IF_ERROR(arguments.check(2));
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor h_gradient = read(registers, dh);
    const at::Tensor c_gradient = read(registers, dc_next);
    const at::Tensor state = read(registers, c);
    const at::Tensor next = read(registers, c_next);
    const at::Tensor active = read(registers, activations);
    at::Tensor dgates = at::empty(active.sizes(), active.options());
    at::Tensor dc = at::empty(state.sizes(), state.options());
    const std::int64_t hidden = state.size(1);
    at::parallel_for(0, state.size(0), row_grain(hidden), [&](std::int64_t begin, std::int64_t end) {
      kernels::lstm_cell_backward(h_gradient.defined() ? h_gradient.const_data_ptr<float>() : nullptr,
                                  c_gradient.defined() ? c_gradient.const_data_ptr<float>() : nullptr,
                                  state.const_data_ptr<float>(), next.const_data_ptr<float>(),
                                  active.const_data_ptr<float>(), dgates.mutable_data_ptr<float>(),
                                  dc.mutable_data_ptr<float>(), begin, end, hidden);
    });
    write(registers, outputs[0], std::move(dgates));
    write(registers, outputs[1], std::move(dc));
  });
}

Result<Kernel> bind_gru_cell(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId input_gates = arguments.value();
  const ValueId hidden_gates = arguments.value();
  const ValueId h = arguments.value();
  TESSER_RETURN_IF_ERROR(arguments.check(2));
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor from_input = read(registers, input_gates);
    const at::Tensor from_hidden = read(registers, hidden_gates);
    const at::Tensor state = read(registers, h);
    at::Tensor next = at::empty(state.sizes(), state.options());
    at::Tensor activations = at::empty(from_input.sizes(), from_input.options());
    const std::int64_t hidden = state.size(1);
    at::parallel_for(0, state.size(0), row_grain(hidden), [&](std::int64_t begin, std::int64_t end) {
      kernels::gru_cell(from_input.const_data_ptr<float>(), from_hidden.const_data_ptr<float>(),
                        state.const_data_ptr<float>(), next.mutable_data_ptr<float>(),
                        activations.mutable_data_ptr<float>(), begin, end, hidden);
    });
    write(registers, outputs[0], std::move(next));
    write(registers, outputs[1], std::move(activations));
  });
}

Result<Kernel> bind_gru_cell_backward(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId dh_next = arguments.value();
  const ValueId hidden_gates = arguments.value();
  const ValueId h = arguments.value();
  const ValueId activations = arguments.value();
  TESSER_RETURN_IF_ERROR(arguments.check(3));
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor gradient = read(registers, dh_next);
    const at::Tensor from_hidden = read(registers, hidden_gates);
    const at::Tensor state = read(registers, h);
    const at::Tensor active = read(registers, activations);
    at::Tensor dinput = at::empty(active.sizes(), active.options());
    at::Tensor dhidden = at::empty(active.sizes(), active.options());
    at::Tensor dh = at::empty(state.sizes(), state.options());
    const std::int64_t hidden = state.size(1);
    at::parallel_for(0, state.size(0), row_grain(hidden), [&](std::int64_t begin, std::int64_t end) {
      kernels::gru_cell_backward(gradient.const_data_ptr<float>(), from_hidden.const_data_ptr<float>(),
                                 state.const_data_ptr<float>(), active.const_data_ptr<float>(),
                                 dinput.mutable_data_ptr<float>(), dhidden.mutable_data_ptr<float>(),
                                 dh.mutable_data_ptr<float>(), begin, end, hidden);
    });
    write(registers, outputs[0], std::move(dinput));
    write(registers, outputs[1], std::move(dhidden));
    write(registers, outputs[2], std::move(dh));
  });
}

// The gradient as the parameter lies in memory, so that one index serves both.
at::Tensor laid_out_as(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (gradient.strides() == parameter.strides()) return gradient;
  at::Tensor copy = at::empty_strided(parameter.sizes(), parameter.strides(), parameter.options());
  copy.copy_(gradient);
  return copy;
}

// What an update changes: state of the program in its own memory; anything else, as a part of a state value that one
// worker of several updates for another, in a copy.
class Updated {
 public:
  Updated(const Program& program, ValueId id) : id_(id), is_state_(id != kNone && program.value(id).is_state()) {}
  at::Tensor read(const Registers& registers) const {
    at::Tensor tensor = runtime::read(registers, id_);
    return is_state_ || !tensor.defined() ? tensor : tensor.clone();
  }
  // Lying in memory as `parameter` does.
  at::Tensor read(const Registers& registers, const at::Tensor& parameter) const {
    at::Tensor tensor = read(registers);
    if (tensor.defined() && !is_state_) tensor = laid_out_as(tensor, parameter);
    TORCH_CHECK(!tensor.defined() || tensor.strides() == parameter.strides(),
                "optimizer state lies unlike its parameter");
    return tensor;
  }

 private:
  ValueId id_;
  bool is_state_;
};

Result<Kernel> bind_sgd(const Program& program, const Node& node) {
  ArgumentReader arguments(node);
  const ValueId parameter = arguments.value();
  const ValueId gradient = arguments.value();
  const ValueId buffer = arguments.optional_value();
  const ValueId rate = arguments.value();
  const ValueId step = arguments.value();
  optimizer::SgdSettings settings;
  settings.momentum = arguments.number();
  settings.dampening = arguments.number();
  settings.weight_decay = arguments.number();
  settings.nesterov = arguments.flag();
  settings.maximize = arguments.flag();
  TESSER_RETURN_IF_ERROR(arguments.check(2));
  const Updated updated(program, parameter);
  const Updated updated_buffer(program, buffer);
  if ((buffer == kNone) != (settings.momentum == 0)) {
    return invalid_input(describe(node) + ": a momentum buffer goes with momentum, and only with it");
  }
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor weight = updated.read(registers);
    const at::Tensor change = laid_out_as(read(registers, gradient), weight);
    const at::Tensor momentum = updated_buffer.read(registers, weight);
    const double learning_rate = *read(registers, rate).const_data_ptr<double>();
    const std::int64_t steps_done = *read(registers, step).const_data_ptr<std::int64_t>();
    for_real_type(weight, [&]<typename T>() {
      at::parallel_for(0, weight.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        optimizer::sgd_update(weight.mutable_data_ptr<T>(), change.const_data_ptr<T>(),
                              momentum.defined() ? momentum.mutable_data_ptr<T>() : nullptr, begin, end, settings,
                              learning_rate, steps_done);
      });
    });
    write(registers, outputs[0], weight);
    write(registers, outputs[1], momentum);
  });
}

Result<Kernel> bind_adam(const Program& program, const Node& node) {
  ArgumentReader arguments(node);
  const ValueId parameter = arguments.value();
  const ValueId gradient = arguments.value();
  const ValueId average = arguments.value();
  const ValueId square = arguments.value();
  const ValueId maximum = arguments.optional_value();
  const ValueId rate = arguments.value();
  const ValueId step = arguments.value();
  optimizer::AdamSettings settings;
  settings.beta1 = arguments.number();
  settings.beta2 = arguments.number();
  settings.eps = arguments.number();
  settings.weight_decay = arguments.number();
  settings.decoupled_weight_decay = arguments.flag();
  const bool amsgrad = arguments.flag();
  settings.maximize = arguments.flag();
  TESSER_RETURN_IF_ERROR(arguments.check(4));
  const Updated updated(program, parameter);
  const Updated updated_average(program, average);
  const Updated updated_square(program, square);
  const Updated updated_maximum(program, maximum);
  if (amsgrad != (maximum != kNone))
    return invalid_input(describe(node) + ": max_exp_avg_sq goes with amsgrad, and only with it");
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor weight = updated.read(registers);
    const at::Tensor change = laid_out_as(read(registers, gradient), weight);
    const at::Tensor first = updated_average.read(registers, weight);
    const at::Tensor second = updated_square.read(registers, weight);
    const at::Tensor largest = updated_maximum.read(registers, weight);
    const double learning_rate = *read(registers, rate).const_data_ptr<double>();
    const std::int64_t steps_done = *read(registers, step).const_data_ptr<std::int64_t>();
    for_real_type(weight, [&]<typename T>() {
      at::parallel_for(0, weight.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        optimizer::adam_update(weight.mutable_data_ptr<T>(), change.const_data_ptr<T>(), first.mutable_data_ptr<T>(),
                               second.mutable_data_ptr<T>(),
                               largest.defined() ? largest.mutable_data_ptr<T>() : nullptr, begin, end, settings,
                               learning_rate, steps_done);
      });
    });
    write(registers, outputs[0], weight);
    write(registers, outputs[1], first);
    write(registers, outputs[2], second);
    write(registers, outputs[3], largest);
  });
}

}  // namespace

Result<Kernel> bind_recurrent_cell(const Program&, const Node& node) {
  if (node.op == "tesser::lstm_cell") return bind_lstm_cell(node);
  if (node.op == "tesser::lstm_cell_backward") return bind_lstm_cell_backward(node);
  if (node.op == "tesser::gru_cell") return bind_gru_cell(node);
  if (node.op == "tesser::gru_cell_backward") return bind_gru_cell_backward(node);
  return Kernel();
}

Result<Kernel> bind_update(const Program& program, const Node& node) {
  if (node.op == "tesser::sgd") return bind_sgd(program, node);
  if (node.op == "tesser::adam") return bind_adam(program, node);
  return Kernel();
}

}  // namespace tesser::runtime
