#include "kernels/transpose.h"

#include <algorithm>

namespace tesser::kernels {

void transpose(const float* source, float* target, std::int64_t rows, std::int64_t columns, std::int64_t begin,
               std::int64_t end) {
  // A tile's lines of both matrices fit in the first-level cache, and every cache line is used whole.
  constexpr std::int64_t kTile = 16;
  for (std::int64_t c0 = begin; c0 < end; c0 += kTile) {
    const std::int64_t c1 = std::min(c0 + kTile, end);
    for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
      const std::int64_t r1 = std::min(r0 + kTile, rows);
      for (std::int64_t c = c0; c < c1; ++c) {
        for (std::int64_t r = r0; r < r1; ++r) target[c * rows + r] = source[r * columns + c];
      }
    }
  }
}

}  // namespace tesser::kernels
