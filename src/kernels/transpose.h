// Transposition of row-major float32 matrices, tile by tile.
#pragma once

#include <cstdint>

namespace tesser::kernels {

// target[columns, rows] = source[rows, columns]', its rows [begin, end) (which are columns of the source). The matrices
// must not overlap. Any thread; no allocation.
void transpose(const float* source, float* target, std::int64_t rows, std::int64_t columns, std::int64_t begin,
               std::int64_t end);

}  // namespace tesser::kernels
