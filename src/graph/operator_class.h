// What kind of work an operator is, and how much.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/program.h"

namespace tesser::graph {

enum class OperatorClass : std::uint8_t {
  kView,         // may share its first argument's memory and computes nothing
  kMovement,     // creates or moves elements: fill, clone, cat, gather, embedding, ...
  kElementwise,  // element i of the results needs element i of the arguments (broadcast) alone
  kContraction,  // matrix products, convolutions, attention
  kOther,        // reductions, normalisations, pooling, updates, ...
};

// The name without its overload: "aten::add" of "aten::add.Tensor".
std::string_view base_name(std::string_view op);

OperatorClass operator_class(std::string_view op);

// Floating-point operations of one node: two for each multiplication with its addition in contractions (both halves of
// causal attention are counted, a backward attention computes its scores again), one an element of the largest argument
// or result elsewhere, none for views and movement. Saturates at the largest std::int64_t.
std::int64_t floating_point_operations(const Program& program, const Node& node);

}  // namespace tesser::graph
