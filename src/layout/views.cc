#include "layout/views.h"

#include <algorithm>

#include "graph/operator_class.h"

namespace tesser::layout {
namespace {

using graph::kNone;
using graph::Node;
using graph::Program;
using graph::Value;
using graph::ValueRef;

std::int64_t integer_argument(const Node& node, std::size_t place, std::int64_t fallback) {
  const auto* const integer = place < node.args.size() ? std::get_if<std::int64_t>(&node.args[place]) : nullptr;
  return integer == nullptr ? fallback : *integer;
}

// Dimension counted from the end when negative; nothing when it does not exist.
std::optional<std::size_t> dimension(std::int64_t dim, std::size_t rank) {
  const auto size = static_cast<std::int64_t>(rank);
  if (dim < -size || dim >= size) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(dim < 0 ? dim + size : dim);
}

// Strides under which the same elements, in row-major order, have another shape; nothing when there are none. Runs of
// dimensions that lie densely in each other are one dimension, which the new shape may cut in its own way.
std::optional<Strides> reshaped(const Shape& shape, const Strides& strides, const Shape& target) {
  if (element_count(shape) == 0 || element_count(target) == 0) {
    return row_major(target);
  }
  Strides result(target.size());
  auto place = static_cast<std::ptrdiff_t>(target.size()) - 1;
  std::int64_t run = 1;       // elements of the current run of dimensions
  std::int64_t assigned = 1;  // elements of it that the target has taken
  std::int64_t base = shape.empty() ? 1 : strides.back();
  for (auto dim = static_cast<std::ptrdiff_t>(shape.size()) - 1; dim >= 0; --dim) {
    const auto at = static_cast<std::size_t>(dim);
    run = product(run, shape[at]);
    const bool run_ends = dim == 0 || (shape[at - 1] != 1 && strides[at - 1] != product(run, base));
    if (!run_ends) {
      continue;
    }
    while (place >= 0 && (assigned < run || target[static_cast<std::size_t>(place)] == 1)) {
      result[static_cast<std::size_t>(place)] = product(assigned, base);
      assigned = product(assigned, target[static_cast<std::size_t>(place)]);
      --place;
    }
    if (assigned != run) {
      return std::nullopt;
    }
    if (dim > 0) {
      base = strides[at - 1];
      run = 1;
      assigned = 1;
    }
  }
  for (; place >= 0; --place) {
    result[static_cast<std::size_t>(place)] = base;  // dimensions of size 1
  }
  return result;
}

// The source dimensions that squeeze keeps, given the result's rank and which were asked for.
Strides squeezed(const Node& node, const Shape& shape, const Strides& strides) {
  std::vector<bool> asked(shape.size(), node.args.size() < 2);
  if (node.args.size() >= 2) {
    std::vector<std::int64_t> dims;
    if (const auto* const list = std::get_if<std::vector<std::int64_t>>(&node.args[1])) {
      dims = *list;
    } else {
      dims.push_back(integer_argument(node, 1, 0));
    }
    for (const std::int64_t dim : dims) {
      if (const auto at = dimension(dim, shape.size()); at.has_value()) {
        asked[*at] = true;
      }
    }
  }
  Strides kept;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (!(asked[dim] && shape[dim] == 1)) {
      kept.push_back(strides[dim]);
    }
  }
  return kept;
}

Strides expanded(const Shape& shape, const Strides& strides, const Shape& target) {
  Strides result(target.size(), 0);
  const std::size_t added = target.size() - std::min(shape.size(), target.size());
  for (std::size_t dim = added; dim < target.size(); ++dim) {
    const std::size_t source = dim - added;
    result[dim] = shape[source] == target[dim] ? strides[source] : 0;
  }
  return result;
}

Strides without(Strides strides, std::size_t dim) {
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return strides;
}

}  // namespace

std::optional<std::vector<Strides>> view_strides(const Program& program, const Node& node, const Strides& argument) {
  if (graph::operator_class(node.op) != graph::OperatorClass::kView || node.outputs.empty() || node.args.empty()) {
    return std::nullopt;
  }
  const auto* const reference = std::get_if<ValueRef>(&node.args[0]);
  if (reference == nullptr) {
    return std::nullopt;
  }
  const std::string_view name = graph::base_name(node.op);
  const Value& source = program.value(reference->id);
  const Shape& shape = source.shape;
  Strides strides = argument;

  // Operators with several results cut one dimension; all results have the same strides.
  if (name == "aten::unbind" || name == "aten::split" || name == "aten::split_with_sizes" || name == "aten::chunk") {
    if (name == "aten::unbind") {
      const auto dim = dimension(integer_argument(node, 1, 0), shape.size());
      if (!dim.has_value()) {
        return std::nullopt;
      }
      strides = without(strides, *dim);
    }
    return std::vector<Strides>(node.outputs.size(), strides);
  }
  if (node.outputs[0] == kNone) {
    return std::nullopt;
  }
  const Value& result = program.value(node.outputs[0]);
  if (element_size(result.dtype) != element_size(source.dtype)) {
    return std::nullopt;  // view.dtype between sizes: taken as a copy
  }
  if (name == "aten::detach" || name == "aten::alias" || name == "aten::lift_fresh") {
  } else if (name == "aten::contiguous") {
    if (strides != row_major(shape)) {
      return std::nullopt;
    }
  } else if (name == "aten::t" || name == "aten::transpose") {
    const bool is_t = name == "aten::t";
    const auto first = dimension(is_t ? 0 : integer_argument(node, 1, 0), shape.size());
    const auto second = dimension(is_t ? -1 : integer_argument(node, 2, 0), shape.size());
    if (first.has_value() && second.has_value()) {
      std::swap(strides[*first], strides[*second]);
    }
  } else if (name == "aten::permute") {
    const auto* const order = node.args.size() < 2 ? nullptr : std::get_if<std::vector<std::int64_t>>(&node.args[1]);
    if (order == nullptr || order->size() != shape.size()) {
      return std::nullopt;
    }
    for (std::size_t place = 0; place < order->size(); ++place) {
      const auto dim = dimension((*order)[place], shape.size());
      if (!dim.has_value()) {
        return std::nullopt;
      }
      strides[place] = argument[*dim];
    }
  } else if (name == "aten::expand" || name == "aten::expand_as") {
    strides = expanded(shape, strides, result.shape);
  } else if (name == "aten::slice" || name == "aten::narrow") {
    const auto dim = dimension(integer_argument(node, 1, 0), shape.size());
    if (dim.has_value() && name == "aten::slice") {
      strides[*dim] = product(strides[*dim], integer_argument(node, 4, 1));
    }
  } else if (name == "aten::select") {
    const auto dim = dimension(integer_argument(node, 1, 0), shape.size());
    if (!dim.has_value()) {
      return std::nullopt;
    }
    strides = without(strides, *dim);
  } else if (name == "aten::squeeze") {
    strides = squeezed(node, shape, strides);
  } else if (name == "aten::unsqueeze") {
    const auto dim = dimension(integer_argument(node, 1, 0), shape.size() + 1);
    if (!dim.has_value()) {
      return std::nullopt;
    }
    const std::int64_t stride = *dim < shape.size() ? product(shape[*dim], strides[*dim]) : 1;
    strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(*dim), stride);
  } else {  // the operators that keep the row-major order of elements: view, reshape, flatten, ...
    const auto same_elements = reshaped(shape, strides, result.shape);
    if (!same_elements.has_value()) {
      return std::nullopt;
    }
    strides = *same_elements;
  }
  if (strides.size() != result.shape.size()) {
    return std::nullopt;
  }
  return std::vector<Strides>{strides};
}

}  // namespace tesser::layout
