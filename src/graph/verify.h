#pragma once

#include "base/result.h"
#include "graph/program.h"

namespace tesser::graph {

// Checks everything docs/formats/program.md demands of a program, whether it was read or made by a pass: single
// assignment and order, indices, names, roles, types, forward links, outputs, schedules. Operators' own schemas are not
// checked here; the runtime does that. The error (kInvalidInput) names the node or value and the reason. Linear in the
// size of the program.
Result<void> verify(const Program& program);

}  // namespace tesser::graph
