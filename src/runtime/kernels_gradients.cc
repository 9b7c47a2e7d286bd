// Nodes with which a replica hands gradients to a hub (passes/push_gradients.h).
#include <stdexcept>

#include <ATen/ops/from_blob.h>

#include "runtime/argument_reader.h"
#include "runtime/gradient_exchange.h"
#include "runtime/kernels.h"

namespace tesser::runtime {
namespace {

void check(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

}  // namespace

bool lies_alike(const at::Tensor& left, const at::Tensor& right) {
  bool alike = left.sizes() == right.sizes() && left.scalar_type() == right.scalar_type();
  for (std::int64_t dimension = 0; alike && dimension < left.dim(); ++dimension) {
    alike = left.size(dimension) == 1 || left.stride(dimension) == right.stride(dimension);
  }
  return alike;
}

Result<Kernel> bind_gradients(const graph::Node& node, Movement& movement) {
  GradientExchange* exchange = movement.gradients;
  if (exchange == nullptr) return Kernel();
  ArgumentReader arguments(node);
  if (node.op == "tesser::wait_for_weights") {
    arguments.value();
    const auto number = static_cast<std::size_t>(arguments.integer());
    TESSER_RETURN_IF_ERROR(arguments.check(0));
    return Kernel([=](Registers&) { check(exchange->wait(number)); });
  }
  if (node.op != "tesser::push_gradient") return Kernel();
  const graph::ValueId parameter = arguments.value();
  const graph::ValueId gradient = arguments.value();
  const auto number = static_cast<std::size_t>(arguments.integer());
  TESSER_RETURN_IF_ERROR(arguments.check(0));
  return Kernel([=, copied = &movement.copied_gradient_bytes](Registers& registers) {
    const at::Tensor weight = read(registers, parameter);
    const at::Tensor made = read(registers, gradient);
    const std::span<float> target = exchange->gradient(number);
    // As the parameter lies in memory, so that one index serves both. After the first step most gradients are made
    // there (Executor, pin_gradient).
    if (made.const_data_ptr() != target.data() || !lies_alike(made, weight)) {
      at::from_blob(target.data(), weight.sizes(), weight.strides(), weight.options()).copy_(made);
      *copied += static_cast<std::int64_t>(target.size_bytes());
    }
    check(exchange->push(number));
  });
}

}  // namespace tesser::runtime
