// Reading the arguments of an operator of our own, when a node is bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "graph/program.h"
#include "runtime/kernels.h"

namespace tesser::runtime {

// Reads a node's arguments one after another and remembers whether all had the expected type.
class ArgumentReader {
 public:
  explicit ArgumentReader(const graph::Node& node) : node_(node) {}

  graph::ValueId value() {
    const auto* reference = next<graph::ValueRef>();
    if (reference == nullptr) fits_ = false;
    return reference == nullptr ? graph::kNone : reference->id;
  }
  graph::ValueId optional_value() {
    if (position_ >= node_.args.size() || std::holds_alternative<graph::None>(node_.args[position_])) {
      ++position_;
      return graph::kNone;
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

  const graph::Node& node_;
  std::size_t position_ = 0;
  bool fits_ = true;
};

// Calls function.operator()<T>() for float32 and float64.
template <typename Function>
void for_real_type(const at::Tensor& tensor, const Function& function) {
  if (tensor.scalar_type() == at::kFloat) return function.template operator()<float>();
  TORCH_CHECK(tensor.scalar_type() == at::kDouble, "float32 or float64 is expected, found ", tensor.scalar_type());
  function.template operator()<double>();
}

}  // namespace tesser::runtime
