// Operators of the tesser namespace (docs/formats/operators.md) over src/kernels and src/optimizer.
#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "kernels/philox.h"
#include "kernels/recurrent_cells.h"
#include "optimizer/update.h"
#include "runtime/kernels.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;

constexpr std::int64_t kGrain = 16 * 1024;  // elements a thread takes at least

// Reads a node's arguments one after another and remembers whether all had the expected type.
class ArgumentReader {
 public:
  explicit ArgumentReader(const Node& node) : node_(node) {}

  ValueId value() {
    const auto* reference = next<ValueRef>();
    if (reference == nullptr) fits_ = false;
    return reference == nullptr ? kNone : reference->id;
  }
  ValueId optional_value() {
    if (position_ >= node_.args.size() || std::holds_alternative<graph::None>(node_.args[position_])) {
      ++position_;
      return kNone;
    }
    return value();
  }
  double number() {
    if (position_ < node_.args.size()) {
      if (const auto* integer = std::get_if<std::int64_t>(&node_.args[position_])) {
        ++position_;
        return static_cast<double>(*integer);
      }
    }
    return take<double>();
  }
  std::int64_t integer() { return take<std::int64_t>(); }
  bool flag() { return take<bool>(); }
  Shape sizes() { return take<Shape>(); }

  // Whether every argument was there with its type, none is left over, and the results are as many as the operator has.
  Result<void> check(std::size_t results) const {
    if (fits_ && position_ == node_.args.size() && node_.outputs.size() == results) return {};
    return invalid_input(describe(node_) +
                         ": arguments or results do not fit the operator; see docs/formats/operators.md");
  }

 private:
  template <typename T>
  const T* next() {
    if (position_ >= node_.args.size()) return nullptr;
    return std::get_if<T>(&node_.args[position_++]);
  }
  template <typename T>
  T take() {
    const T* found = next<T>();
    if (found == nullptr) fits_ = false;
    return found == nullptr ? T() : *found;
  }

  const Node& node_;
  std::size_t position_ = 0;
  bool fits_ = true;
};

// Seed, step and id of a random operator.
struct Stream {
  ValueId seed_value = kNone;
  ValueId step_value = kNone;
  std::int64_t id = 0;

  void take_from(ArgumentReader& arguments) {
    seed_value = arguments.value();
    step_value = arguments.value();
    id = arguments.integer();
  }
  std::uint64_t seed(const Registers& registers) const {
    return static_cast<std::uint64_t>(*read(registers, seed_value).const_data_ptr<std::int64_t>());
  }
  std::int64_t step(const Registers& registers) const {
    return *read(registers, step_value).const_data_ptr<std::int64_t>();
  }
};

// Philox numbers by groups of four: ranges begin at multiples of 4 so that no block is computed twice.
template <typename Function>
void over_elements(std::int64_t count, const Function& function) {
  at::parallel_for(0, (count + 3) / 4, kGrain / 4,
                   [&](std::int64_t begin, std::int64_t end) { function(begin * 4, std::min(end * 4, count)); });
}

// Calls function.operator()<T>() for float32 and float64.
template <typename Function>
void for_real_type(const at::Tensor& tensor, const Function& function) {
  if (tensor.scalar_type() == at::kFloat) return function.template operator()<float>();
  TORCH_CHECK(tensor.scalar_type() == at::kDouble, "float32 or float64 is expected, found ", tensor.scalar_type());
  function.template operator()<double>();
}

Result<Kernel> bind_dropout(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId x = arguments.value();
  const double p = arguments.number();
  Stream stream;
  stream.take_from(arguments);
  const bool by_channel = node.op == "tesser::dropout.channels";
  const std::int64_t channels = by_channel ? arguments.integer() : 0;
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    const at::Tensor source = read(registers, x).contiguous();
    at::Tensor result = at::empty(source.sizes(), source.options());
    std::int64_t inner = 1;
    for (std::int64_t d = channels; by_channel && d < source.dim(); ++d) inner *= source.size(d);
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    for_real_type(source, [&]<typename T>() {
      const T* from = source.const_data_ptr<T>();
      T* to = result.mutable_data_ptr<T>();
      over_elements(source.numel(), [&](std::int64_t begin, std::int64_t end) {
        if (by_channel) {
          kernels::dropout_channels(from + begin, to + begin, begin, end, inner, p, seed, step, stream.id);
        } else {
          kernels::dropout(from + begin, to + begin, begin, end, p, seed, step, stream.id);
        }
      });
    });
    write(registers, output, std::move(result));
  });
}

// tesser::uniform and tesser::normal: (size, a, b, seed, step, id) -> float32.
template <typename Fill>
Result<Kernel> bind_real_generator(const Node& node, Fill fill) {
  ArgumentReader arguments(node);
  const Shape size = arguments.sizes();
  const double first = arguments.number();
  const double second = arguments.number();
  Stream stream;
  stream.take_from(arguments);
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    at::Tensor result = at::empty(size, at::TensorOptions(at::kFloat));
    float* to = result.mutable_data_ptr<float>();
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    over_elements(result.numel(), [&](std::int64_t begin, std::int64_t end) {
      fill(to + begin, begin, end, first, second, seed, step, stream.id);
    });
    write(registers, output, std::move(result));
  });
}

Result<Kernel> bind_bernoulli(const Node& node) {
  ArgumentReader arguments(node);
  const ValueId p = arguments.value();
  Stream stream;
  stream.take_from(arguments);
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    const at::Tensor source = read(registers, p).contiguous();
    at::Tensor result = at::empty(source.sizes(), source.options());
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    for_real_type(source, [&]<typename T>() {
      const T* from = source.const_data_ptr<T>();
      T* to = result.mutable_data_ptr<T>();
      over_elements(source.numel(), [&](std::int64_t begin, std::int64_t end) {
        kernels::bernoulli(from + begin, to + begin, begin, end, seed, step, stream.id);
      });
    });
    write(registers, output, std::move(result));
  });
}

Result<Kernel> bind_randint(const Node& node) {
  ArgumentReader arguments(node);
  const Shape size = arguments.sizes();
  const std::int64_t low = arguments.integer();
  const std::int64_t high = arguments.integer();
  Stream stream;
  stream.take_from(arguments);
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  if (high <= low || high - low > (std::int64_t{1} << 32)) {
    return invalid_input(describe(node) + ": the range from " + std::to_string(low) + " to " + std::to_string(high) +
                         " must hold between 1 and 2^32 integers");
  }
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    at::Tensor result = at::empty(size, at::TensorOptions(at::kLong));
    auto* to = result.mutable_data_ptr<std::int64_t>();
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    over_elements(result.numel(), [&](std::int64_t begin, std::int64_t end) {
      kernels::randint(to + begin, begin, end, low, high, seed, step, stream.id);
    });
    write(registers, output, std::move(result));
  });
}

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
    const at::Tensor g = read(registers, gates).contiguous();
    const at::Tensor state = read(registers, c).contiguous();
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
    const at::Tensor h_gradient = dh == kNone ? at::Tensor() : read(registers, dh).contiguous();
    const at::Tensor c_gradient = dc_next == kNone ? at::Tensor() : read(registers, dc_next).contiguous();
    const at::Tensor state = read(registers, c).contiguous();
    const at::Tensor next = read(registers, c_next).contiguous();
    const at::Tensor active = read(registers, activations).contiguous();
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
    const at::Tensor from_input = read(registers, input_gates).contiguous();
    const at::Tensor from_hidden = read(registers, hidden_gates).contiguous();
    const at::Tensor state = read(registers, h).contiguous();
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
    const at::Tensor gradient = read(registers, dh_next).contiguous();
    const at::Tensor from_hidden = read(registers, hidden_gates).contiguous();
    const at::Tensor state = read(registers, h).contiguous();
    const at::Tensor active = read(registers, activations).contiguous();
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

// The state an update changes must be state of the program, so that its memory may be overwritten.
Result<void> check_state(const Program& program, const Node& node, std::initializer_list<ValueId> state) {
  for (const ValueId id : state) {
    if (id == kNone || program.value(id).is_state()) continue;
    return invalid_input(describe(node) + ": '" + program.value(id).name +
                         "' is updated but is no parameter or optimizer state");
  }
  return {};
}

// The gradient as the parameter lies in memory, so that one index serves both.
at::Tensor laid_out_as(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (gradient.strides() == parameter.strides()) return gradient;
  at::Tensor copy = at::empty_strided(parameter.sizes(), parameter.strides(), parameter.options());
  copy.copy_(gradient);
  return copy;
}

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
  TESSER_RETURN_IF_ERROR(check_state(program, node, {parameter, buffer}));
  if ((buffer == kNone) != (settings.momentum == 0)) {
    return invalid_input(describe(node) + ": a momentum buffer goes with momentum, and only with it");
  }
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor weight = read(registers, parameter);
    const at::Tensor change = laid_out_as(read(registers, gradient), weight);
    const at::Tensor momentum = buffer == kNone ? at::Tensor() : read(registers, buffer);
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
  TESSER_RETURN_IF_ERROR(check_state(program, node, {parameter, average, square, maximum}));
  if (amsgrad != (maximum != kNone))
    return invalid_input(describe(node) + ": max_exp_avg_sq goes with amsgrad, and only with it");
  const std::vector<ValueId> outputs = node.outputs;
  return Kernel([=](Registers& registers) {
    const at::Tensor weight = read(registers, parameter);
    const at::Tensor change = laid_out_as(read(registers, gradient), weight);
    const at::Tensor first = read(registers, average);
    const at::Tensor second = read(registers, square);
    const at::Tensor largest = maximum == kNone ? at::Tensor() : read(registers, maximum);
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

Result<Kernel> bind_random_operator(const Program&, const Node& node) {
  if (node.op == "tesser::dropout" || node.op == "tesser::dropout.channels") return bind_dropout(node);
  if (node.op == "tesser::uniform") return bind_real_generator(node, kernels::uniform);
  if (node.op == "tesser::normal") return bind_real_generator(node, kernels::normal);
  if (node.op == "tesser::bernoulli") return bind_bernoulli(node);
  if (node.op == "tesser::randint") return bind_randint(node);
  return Kernel();
}

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
