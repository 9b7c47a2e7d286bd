// Which operators' results lie in their argument's memory, and how. Internal to this folder.
#pragma once

#include <optional>
#include <vector>

#include "graph/program.h"

namespace tesser::memory {

// Elements from one index to the next, by dimension.
using Strides = std::vector<std::int64_t>;

Strides contiguous_strides(const Shape& shape);

// For a node whose results are views of its first argument: the strides of each result. Nothing when it makes memory of
// its own, also where a view is not possible with the argument's strides and the runtime has to copy.
std::optional<std::vector<Strides>> view_strides(const graph::Program& program, const graph::Node& node,
                                                 const Strides& argument);

// Strides of a result in memory of its own. `arguments` gives the strides of any value defined before.
Strides fresh_strides(const graph::Program& program, const graph::Node& node, std::size_t result,
                      const std::vector<Strides>& strides);

}  // namespace tesser::memory
