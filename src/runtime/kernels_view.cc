// Views, which a program means logically whatever the layout.
#include <ATen/ops/reshape.h>

#include "runtime/kernels.h"

namespace tesser::runtime {

Result<Kernel> bind_view(const graph::Program& program, const graph::Node& node) {
  if (node.op != "aten::view" && node.op != "aten::_unsafe_view" && node.op != "aten::reshape") return Kernel();
  const auto* source = node.args.empty() ? nullptr : std::get_if<graph::ValueRef>(&node.args[0]);
  if (source == nullptr || node.outputs.size() != 1 || node.outputs[0] == graph::kNone) return Kernel();
  // Shapes of a program are logical (docs/formats/program.md); where the layout forbids a view, reshape copies.
  const Shape shape = program.value(node.outputs[0]).shape;
  return Kernel([from = static_cast<std::size_t>(source->id), to = static_cast<std::size_t>(node.outputs[0]),
                 shape](Registers& registers) { registers[to] = at::reshape(registers[from], shape); });
}

}  // namespace tesser::runtime
