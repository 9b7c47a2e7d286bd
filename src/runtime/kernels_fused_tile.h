// One instruction of a fused expression over one tile, compiled once for each instruction set with ATen's vector types,
// so that the numbers are those of ATen's own kernels.
#pragma once

#include <cstdint>

#include "runtime/passes/fused_expression.h"

namespace tesser::runtime {

// result[k] = opcode(a[k], b[k], c[k], first, second) for k in [0, count). Operands may alias the result exactly;
// unused ones are null. kDropout is not computed here.
using TileFunction = void (*)(Opcode opcode, float* result, const float* a, const float* b, const float* c,
                              double first, double second, std::int64_t count);

// The fastest one that this processor can run.
TileFunction tile_function();

}  // namespace tesser::runtime
