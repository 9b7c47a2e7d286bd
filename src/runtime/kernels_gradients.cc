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

Result<Kernel> bind_gradients(const graph::Node& node, const Movement& movement) {
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
  return Kernel([=](Registers& registers) {
    const at::Tensor weight = read(registers, parameter);
    // As the parameter lies in memory, so that one index serves both.
    at::from_blob(exchange->gradient(number), weight.sizes(), weight.strides(), weight.options())
        .copy_(read(registers, gradient));
    check(exchange->push(number));
  });
}

}  // namespace tesser::runtime
