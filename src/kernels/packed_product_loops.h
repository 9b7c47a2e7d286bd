// The tiles of one instruction set; see kernels/packed_product.h.
#pragma once

#include <cstdint>

#include "base/instruction_set.h"

namespace tesser::kernels {

struct PackedProductLoops {
  std::int64_t tile_rows = 0;  // most rows of a tile
  // sums[rows, kPanelColumns] += left[rows, depth] panel[depth, kPanelColumns], 1 <= rows <= tile_rows; rows of left
  // and of sums are their pitches apart.
  void (*multiply)(const float* left, std::int64_t left_pitch, const float* panel, float* sums, std::int64_t sums_pitch,
                   std::int64_t rows, std::int64_t depth);
};

namespace portable {
extern const PackedProductLoops kPackedProductLoops;
}
namespace avx2 {
extern const PackedProductLoops kPackedProductLoops;
}
namespace avx512 {
extern const PackedProductLoops kPackedProductLoops;
}

}  // namespace tesser::kernels
