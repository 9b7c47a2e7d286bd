// Nodes of lowered programs that move tensors between workers (docs/formats/lowered.md).
#include <stdexcept>
#include <utility>

#include <ATen/ops/add.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

#include "layout/strides.h"
#include "runtime/argument_reader.h"
#include "runtime/exchange.h"
#include "runtime/kernels.h"

namespace tesser::runtime {
namespace {

using graph::Node;
using graph::Program;
using graph::ValueId;

// Rectangles in pieces as small as this are first brought together: short copies cost more than a second pass.
constexpr std::uint64_t kShortestRun = 64;
constexpr std::uint64_t kFewestShortRuns = 64;

void check(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

Shape part(const Shape& flat, std::size_t index, std::size_t rank) {
  const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(index * rank);
  return Shape(begin, begin + static_cast<std::ptrdiff_t>(rank));
}

at::Tensor rectangle(at::Tensor tensor, const Shape& begin, const Shape& size) {
  for (std::size_t dimension = 0; dimension < size.size(); ++dimension) {
    tensor = tensor.narrow(static_cast<std::int64_t>(dimension), begin[dimension], size[dimension]);
  }
  return tensor;
}

Result<void> check_order(const Node& node, const layout::Order& order, std::size_t rank) {
  if (layout::is_order(order, rank)) return {};
  return invalid_input(describe(node) + ": " + shape_text(order) + " is no order of " + std::to_string(rank) +
                       " dimensions");
}

Result<Kernel> bind_open(const Program& program, const Node& node, Exchange& exchange) {
  ArgumentReader arguments(node);
  arguments.sizes();  // from whom; the exchange knows
  const Shape transfers = arguments.sizes();
  arguments.sizes();
  arguments.sizes();
  const layout::Order order = arguments.sizes();
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  const ValueId output = node.outputs[0];
  const graph::Value& value = program.value(output);
  TESSER_RETURN_IF_ERROR(check_order(node, order, value.shape.size()));
  const layout::Strides strides = layout::dense_strides(value.shape, order);
  const Shape shape = value.shape;
  const at::TensorOptions type(scalar_type(value.dtype));
  return Kernel([=, &exchange](Registers& registers) {
    check(exchange.open(transfers));
    write(registers, output, at::from_blob(exchange.buffer(output), shape, strides, type));
  });
}

Result<Kernel> bind_receive(const Program& program, const Node& node, Exchange& exchange) {
  const auto fits = [&] {
    return node.args.size() == 6 && std::holds_alternative<graph::ValueRef>(node.args[0]) &&
           std::holds_alternative<Shape>(node.args[1]) && std::holds_alternative<Shape>(node.args[3]) &&
           std::holds_alternative<Shape>(node.args[4]) && std::holds_alternative<Shape>(node.args[5]) &&
           node.outputs.size() == 1;
  };
  if (!fits()) return invalid_input(describe(node) + ": arguments do not fit; see docs/formats/lowered.md");
  const ValueId buffer = std::get<graph::ValueRef>(node.args[0]).id;
  const auto& transfers = std::get<Shape>(node.args[1]);
  const auto* const own = std::get_if<std::vector<graph::ValueRef>>(&node.args[2]);
  const std::vector<graph::ValueRef> sources = own == nullptr ? std::vector<graph::ValueRef>() : *own;
  const auto& source_begins = std::get<Shape>(node.args[3]);
  const auto& begins = std::get<Shape>(node.args[4]);
  const auto& sizes = std::get<Shape>(node.args[5]);
  const std::size_t rank = program.value(buffer).shape.size();
  for (const Shape* const list : {&source_begins, &begins, &sizes}) {
    if (list->size() != rank * sources.size()) {
      return invalid_input(describe(node) + ": a rectangle for each own part is expected");
    }
  }
  const ValueId output = node.outputs[0];
  return Kernel([=, &exchange](Registers& registers) {
    at::Tensor tensor = read(registers, buffer);
    for (std::size_t index = 0; index < sources.size(); ++index) {
      rectangle(tensor, part(begins, index, rank), part(sizes, index, rank))
          .copy_(rectangle(read(registers, sources[index].id), part(source_begins, index, rank),
                           part(sizes, index, rank)));
    }
    check(exchange.wait_received(transfers));
    write(registers, output, std::move(tensor));
  });
}

Result<Kernel> bind_send(const Program& program, const Node& node, Movement& movement) {
  ArgumentReader arguments(node);
  const ValueId source = arguments.value();
  arguments.integer();
  const std::int64_t transfer = arguments.integer();
  const Shape begin = arguments.sizes();
  const Shape size = arguments.sizes();
  const layout::Order order = arguments.sizes();
  TESSER_RETURN_IF_ERROR(arguments.check(0));
  TESSER_RETURN_IF_ERROR(check_order(node, order, size.size()));
  const DType dtype = program.value(source).dtype;
  return Kernel([=, &movement](Registers& registers) {
    Exchange& exchange = *movement.exchange;
    const at::Tensor tensor = read(registers, source);
    const auto bytes_of = [](const at::Tensor& of) { return static_cast<const std::byte*>(of.const_data_ptr()); };
    const Runs runs = runs_of(dtype, tensor.strides(), begin, size, order);
    std::uint64_t count = 1;
    for (const Runs::Axis& axis : runs.axes) count *= axis.count;
    if (runs.run_bytes >= kShortestRun || count < kFewestShortRuns) {
      check(exchange.send(transfer, bytes_of(tensor), runs));
      return;
    }
    at::Tensor& copy = movement.staged[transfer];
    copy = at::empty_strided(size, layout::dense_strides(size, order), tensor.options());
    copy.copy_(rectangle(tensor, begin, size));
    const Shape origin(size.size(), 0);
    check(exchange.send(transfer, bytes_of(copy), runs_of(dtype, copy.strides(), origin, size, order)));
  });
}

Result<Kernel> bind_sent(const Node& node, Movement& movement) {
  ArgumentReader arguments(node);
  arguments.value();
  arguments.integer();
  const std::int64_t transfer = arguments.integer();
  TESSER_RETURN_IF_ERROR(arguments.check(0));
  return Kernel([=, &movement](Registers& /*registers*/) {
    check(movement.exchange->wait_sent(transfer));
    movement.staged.erase(transfer);
  });
}

// A value in another order of its dimensions, or dense; itself where it lies so already.
Result<Kernel> bind_arrange(const Program& program, const Node& node) {
  ArgumentReader arguments(node);
  const ValueId source = arguments.value();
  const layout::Order order = arguments.sizes();
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  const ValueId output = node.outputs[0];
  const Shape& shape = program.value(output).shape;
  TESSER_RETURN_IF_ERROR(check_order(node, order, shape.size()));
  const layout::Strides strides = layout::dense_strides(shape, order);
  return Kernel([=](Registers& registers) {
    at::Tensor tensor = read(registers, source);
    if (!layout::same(shape, tensor.strides().vec(), strides)) {
      const at::Tensor arranged = at::empty_strided(shape, strides, tensor.options());
      arranged.copy_(tensor);
      tensor = arranged;
    }
    write(registers, output, std::move(tensor));
  });
}

using Combine = void (*)(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

Combine combination(const std::string& kind) {
  if (kind == "sum") return [](at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { at::add_out(out, a, b); };
  if (kind == "max")
    return [](at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { at::maximum_out(out, a, b); };
  if (kind == "min")
    return [](at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { at::minimum_out(out, a, b); };
  if (kind == "prod") return [](at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { at::mul_out(out, a, b); };
  return nullptr;
}

Result<Kernel> bind_reduce(const Program& program, const Node& node) {
  const auto* const parts = node.args.empty() ? nullptr : std::get_if<std::vector<graph::ValueRef>>(&node.args[0]);
  const auto* const kind = node.args.size() == 3 ? std::get_if<std::string>(&node.args[1]) : nullptr;
  const auto* const order = node.args.size() == 3 ? std::get_if<layout::Order>(&node.args[2]) : nullptr;
  if (parts == nullptr || parts->empty() || kind == nullptr || order == nullptr || node.outputs.size() != 1) {
    return invalid_input(describe(node) + ": arguments do not fit; see docs/formats/lowered.md");
  }
  const Combine combine = combination(*kind);
  if (combine == nullptr) return invalid_input(describe(node) + ": no reduction is called '" + *kind + "'");
  const std::vector<graph::ValueRef> terms = *parts;
  const ValueId output = node.outputs[0];
  const Shape& shape = program.value(output).shape;
  TESSER_RETURN_IF_ERROR(check_order(node, *order, shape.size()));
  const layout::Strides strides = layout::dense_strides(shape, *order);
  return Kernel([=](Registers& registers) {
    const at::Tensor first = read(registers, terms[0].id);
    if (terms.size() == 1) return write(registers, output, first);
    at::Tensor total = at::empty_strided(shape, strides, first.options());
    combine(total, first, read(registers, terms[1].id));
    for (std::size_t index = 2; index < terms.size(); ++index) combine(total, total, read(registers, terms[index].id));
    write(registers, output, std::move(total));
  });
}

}  // namespace

Result<Kernel> bind_movement(const Program& program, const Node& node, Movement& movement) {
  if (node.op == "tesser::reduce") return bind_reduce(program, node);
  if (node.op == "tesser::arrange") return bind_arrange(program, node);
  const bool moves = node.op == "tesser::open" || node.op == "tesser::receive" || node.op == "tesser::send" ||
                     node.op == "tesser::sent";
  if (!moves) return Kernel();
  if (movement.exchange == nullptr) {
    return invalid_input(describe(node) +
                         ": this is one worker's part of a lowered program; it runs among its workers");
  }
  if (node.op == "tesser::open") return bind_open(program, node, *movement.exchange);
  if (node.op == "tesser::receive") return bind_receive(program, node, *movement.exchange);
  if (node.op == "tesser::send") return bind_send(program, node, movement);
  return bind_sent(node, movement);
}

}  // namespace tesser::runtime
