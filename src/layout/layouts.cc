#include "layout/layouts.h"

#include <algorithm>
#include <utility>

#include "layout/statement.h"
#include "layout/views.h"

namespace tesser::layout {
namespace {

using graph::kNone;
using graph::Node;
using graph::Program;
using graph::ValueId;

// An order that a node itself states, as a list of dimensions at this position (docs/layouts.md).
std::optional<std::size_t> stated_order_position(const std::string& op) {
  if (op == "tesser::arrange") return 1;
  if (op == "tesser::fused" || op == "tesser::reduce") return 2;
  if (op == "tesser::open") return 4;
  return std::nullopt;
}

std::optional<Strides> stated_by_node(const Node& node, const Shape& shape) {
  const auto position = stated_order_position(node.op);
  if (!position || *position >= node.args.size()) return std::nullopt;
  const auto* const order = std::get_if<Order>(&node.args[*position]);
  if (order == nullptr || !is_order(*order, shape.size())) return std::nullopt;
  return dense_strides(shape, *order);
}

// A layout that a node asks for as PyTorch's argument memory_format, which goes before its kernel's statement.
std::optional<Strides> asked_for(const Node& node, const Shape& shape) {
  for (const graph::Argument& argument : node.args) {
    const auto* const enumerator = std::get_if<graph::Enumerator>(&argument);
    if (enumerator == nullptr || enumerator->kind != "memory_format") continue;
    if (enumerator->name == "contiguous_format") return row_major(shape);
    if (enumerator->name == "channels_last" || enumerator->name == "channels_last_3d") return channels_last(shape);
  }
  return std::nullopt;
}

// The value at a position, of a list its first one.
ValueId argument_at(const Node& node, std::size_t position) {
  if (position >= node.args.size()) return kNone;
  const auto* const list = std::get_if<std::vector<graph::ValueRef>>(&node.args[position]);
  return list == nullptr ? graph::value_argument(node, position) : list->empty() ? kNone : list->front().id;
}

// By value: whether it lies channels-last.
std::vector<bool> channels_last_inputs(const Program& program) {
  std::vector<bool> chosen(program.values.size());
  for (const Node& node : program.nodes) {
    if (node.op != "aten::convolution") continue;
    const ValueId weight = graph::value_argument(node, 1);
    if (weight == kNone) continue;
    const graph::Value& value = program.value(weight);
    if (value.role == graph::Role::kParameter && value.dtype == DType::kFloat32 && value.shape.size() == 4) {
      chosen[static_cast<std::size_t>(weight)] = true;
    }
  }
  // Optimizer state lies as its parameter does, so that an update walks all of them alike.
  for (const ValueId id : program.inputs) {
    const graph::Value& value = program.value(id);
    if (value.of != kNone && value.shape.size() == 4 && chosen[static_cast<std::size_t>(value.of)]) {
      chosen[static_cast<std::size_t>(id)] = true;
    }
  }
  return chosen;
}

}  // namespace

Layouts::Layouts(const Program& program, Weights weights) : program_(program), strides_(program.values.size()) {
  const std::vector<bool> chosen =
      weights == Weights::kChannelsLast ? channels_last_inputs(program) : std::vector<bool>(program.values.size());
  for (const ValueId id : program.inputs) {
    const Shape& shape = program.value(id).shape;
    set(id, chosen[static_cast<std::size_t>(id)] ? channels_last(shape) : row_major(shape));
  }
}

Layouts Layouts::of(const Program& program, Weights weights) {
  Layouts layouts(program, weights);
  for (const Node& node : program.nodes) layouts.define(node);
  return layouts;
}

void Layouts::set(ValueId id, Strides strides) {
  if (static_cast<std::size_t>(id) >= strides_.size()) strides_.resize(program_.values.size());
  strides_[static_cast<std::size_t>(id)] = std::move(strides);
}

bool Layouts::is_known(ValueId id) const {
  return id != kNone && static_cast<std::size_t>(id) < strides_.size() &&
         strides_[static_cast<std::size_t>(id)].size() == program_.value(id).shape.size();
}

std::optional<std::vector<Strides>> Layouts::views(const Node& node) const {
  const ValueId first = graph::value_argument(node, 0);
  if (!is_known(first)) return std::nullopt;
  if (node.op == "tesser::arrange" && node.outputs.size() == 1) {  // itself where it lies so already
    const Shape& shape = program_.value(first).shape;
    const auto stated = stated_by_node(node, shape);
    if (!stated || !same(shape, *stated, (*this)[first])) return std::nullopt;
    return std::vector<Strides>{(*this)[first]};
  }
  return view_strides(program_, node, (*this)[first]);
}

void Layouts::define(const Node& node) {
  if (auto strides = views(node)) {
    for (std::size_t index = 0; index < node.outputs.size(); ++index) {
      if (node.outputs[index] != kNone) set(node.outputs[index], std::move((*strides)[index]));
    }
    return;
  }
  for (std::size_t index = 0; index < node.outputs.size(); ++index) {
    if (node.outputs[index] != kNone) set(node.outputs[index], result(node, index));
  }
}

Strides Layouts::result(const Node& node, std::size_t index) const {
  const Shape& shape = program_.value(node.outputs[index]).shape;
  if (auto stated = stated_by_node(node, shape)) return std::move(*stated);
  if (auto asked = asked_for(node, shape)) return std::move(*asked);
  const ResultRule& rule = statement_of(node.op).result(index);
  const auto known = [&](std::size_t position) {
    const ValueId id = argument_at(node, position);
    return is_known(id) ? id : kNone;
  };
  switch (rule.kind) {
    case ResultRule::Kind::kIterator: {
      std::vector<Operand> operands;
      std::vector<ValueId> arguments = graph::values_read(node);
      if (!rule.arguments.empty()) {
        arguments.clear();
        for (const std::size_t position : rule.arguments) arguments.push_back(known(position));
      }
      for (const ValueId id : arguments) {
        if (is_known(id)) operands.push_back({&program_.value(id).shape, &(*this)[id]});
      }
      return operands.empty() ? row_major(shape) : iterated(shape, operands);
    }
    case ResultRule::Kind::kLike:
      if (const ValueId id = known(rule.arguments.front()); id != kNone && program_.value(id).shape == shape) {
        return preserved(shape, (*this)[id]);
      }
      return row_major(shape);
    case ResultRule::Kind::kImage:
      for (const std::size_t position : rule.arguments) {
        const ValueId id = known(position);
        if (id != kNone && suggests_channels_last(program_.value(id).shape, (*this)[id])) return channels_last(shape);
      }
      return row_major(shape);
    case ResultRule::Kind::kImages: {
      const std::size_t position = rule.arguments.front();
      const auto* const list =
          position < node.args.size() ? std::get_if<std::vector<graph::ValueRef>>(&node.args[position]) : nullptr;
      const bool all =
          list != nullptr && !list->empty() && std::all_of(list->begin(), list->end(), [&](graph::ValueRef each) {
            return is_known(each.id) && suggests_channels_last(program_.value(each.id).shape, (*this)[each.id]);
          });
      return all ? channels_last(shape) : row_major(shape);
    }
    case ResultRule::Kind::kConvolution:
      return is_channels_last_convolution(node) ? channels_last(shape) : row_major(shape);
    case ResultRule::Kind::kOrder:
      return rule.order.size() == shape.size() ? dense_strides(shape, rule.order) : row_major(shape);
    case ResultRule::Kind::kRows:
    case ResultRule::Kind::kView:  // one that could not be foreseen is copied
      break;
  }
  return row_major(shape);
}

// One over sequences runs as one over images of height one, and then looks at its weight alone.
bool Layouts::is_channels_last_convolution(const Node& node) const {
  const ValueId input = graph::value_argument(node, 0);
  const ValueId weight = graph::value_argument(node, 1);
  if (!is_known(input) || !is_known(weight)) return false;
  const auto suggests = [&](ValueId id) { return suggests_channels_last(program_.value(id).shape, (*this)[id]); };
  if (program_.value(weight).shape.size() != 3) return suggests(input) || suggests(weight);
  Shape shape = program_.value(weight).shape;
  Strides strides = (*this)[weight];
  shape.insert(shape.begin() + 2, 1);
  strides.insert(strides.begin() + 2, shape[3] * strides[2]);
  return suggests_channels_last(shape, strides);
}

std::optional<Strides> Layouts::needed(const Node& node, std::size_t position, ValueId argument) const {
  if (!is_known(argument)) return std::nullopt;
  const Shape& shape = program_.value(argument).shape;
  const Strides& strides = (*this)[argument];
  const ArgumentRule& rule = statement_of(node.op).argument(position);
  const auto unless = [](bool fits, Strides target) { return fits ? std::nullopt : std::optional(std::move(target)); };
  switch (rule.kind) {
    case ArgumentRule::Kind::kAny:
      return std::nullopt;
    case ArgumentRule::Kind::kDense:
      return unless(is_dense(shape, strides), preserved(shape, strides));
    case ArgumentRule::Kind::kInner:
      return unless(shape.empty() || shape.back() == 1 || strides.back() == 1, row_major(shape));
    case ArgumentRule::Kind::kImage: {
      const bool is_channels_last = suggests_channels_last(shape, strides);
      Strides target = is_channels_last ? channels_last(shape) : row_major(shape);
      const bool fits = same(shape, strides, target);
      return unless(fits, std::move(target));
    }
    case ArgumentRule::Kind::kLike: {
      const ValueId other = argument_at(node, rule.argument);
      const bool alike = is_known(other) && program_.value(other).shape == shape;
      Strides target = alike ? preserved(shape, (*this)[other]) : row_major(shape);
      const bool fits = same(shape, strides, target);
      return unless(fits, std::move(target));
    }
    case ArgumentRule::Kind::kRows:
      break;
  }
  return unless(is_row_major(shape, strides), row_major(shape));
}

}  // namespace tesser::layout
