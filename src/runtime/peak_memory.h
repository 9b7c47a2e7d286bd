// Peak of a step's tensor storage, from the program alone.
#pragma once

#include <cstdint>

#include "graph/program.h"

namespace tesser::runtime {

// State and arena of one step, in bytes, for a program after the executor's passes: what liveness and layout give (memory::predict), and what
// kernels are known to take for themselves while they run.
std::int64_t predict_peak_bytes(const graph::Program& program);

}  // namespace tesser::runtime
