// Operators whose results lie in their argument's memory.
#pragma once

#include <optional>
#include <vector>

#include "graph/program.h"
#include "layout/strides.h"

namespace tesser::layout {

// For a node whose results are views of its first argument: the strides of each result. Nothing when it makes memory of
// its own, also where a view is not possible with the argument's strides and the runtime has to copy.
std::optional<std::vector<Strides>> view_strides(const graph::Program& program, const graph::Node& node,
                                                 const Strides& argument);

}  // namespace tesser::layout
