#include "kernels/packed_product.h"

#include <algorithm>
#include <cstring>

#include "kernels/packed_product_loops.h"

namespace tesser::kernels {

namespace {

// Of the depth at once: so much of a panel (64 KiB) stays in the second-level cache while all rows pass over it.
constexpr std::int64_t kDepth = 512;

const PackedProductLoops& loops() {
#if defined(__x86_64__)
  if (best_instruction_set() == InstructionSet::kAvx512) return avx512::kPackedProductLoops;
  if (best_instruction_set() == InstructionSet::kAvx2) return avx2::kPackedProductLoops;
#endif
  return portable::kPackedProductLoops;
}

// What a tile's sums begin with: `width` columns from `from` on, zeros beyond and where there is nothing to add.
void begin_row(const float* from, std::int64_t width, float* sums) {
  const std::int64_t given = from == nullptr ? 0 : width;
  std::copy_n(from, given, sums);
  std::fill(sums + given, sums + kPanelColumns, 0.0F);
}

using Four = float __attribute__((vector_size(16)));

// Four rows of four of the source as four columns of a panel.
void transpose_tile(const float* from, std::int64_t pitch, float* to) {
  Four rows[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&rows[i], from + i * pitch, sizeof(Four));
  const Four a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Four b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Four d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  const Four columns[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                           __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * kPanelColumns, &columns[i], sizeof(Four));
}

// A panel of columns that each lie together, `from` the first. Cache lines of the source are read whole.
void pack_transposed(const float* from, std::int64_t depth, float* panel) {
  constexpr std::int64_t kLine = 16;
  for (std::int64_t k = 0; k < depth; k += kLine) {
    const std::int64_t end = std::min(k + kLine, depth);
    for (std::int64_t j = 0; j < kPanelColumns; j += 4) {
      std::int64_t i = k;
      for (; i + 4 <= end; i += 4) transpose_tile(from + j * depth + i, depth, panel + i * kPanelColumns + j);
      for (; i < end; ++i) {
        for (std::int64_t column = j; column < j + 4; ++column) {
          panel[i * kPanelColumns + column] = from[column * depth + i];
        }
      }
    }
  }
}

}  // namespace

bool has_fast_packed_product() { return best_instruction_set() != InstructionSet::kPortable; }

void pack_panels(const float* right, bool transposed, std::int64_t depth, std::int64_t columns, float* packed,
                 std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::int64_t first = panel * kPanelColumns;
    const std::int64_t width = std::min(kPanelColumns, columns - first);
    float* const target = packed + panel * depth * kPanelColumns;
    if (transposed && width == kPanelColumns) {
      pack_transposed(right + first * depth, depth, target);
      continue;
    }
    for (std::int64_t k = 0; k < depth; ++k) {
      float* const row = target + k * kPanelColumns;
      for (std::int64_t j = 0; j < width; ++j) {
        row[j] = transposed ? right[(first + j) * depth + k] : right[k * columns + first + j];
      }
      std::fill(row + width, row + kPanelColumns, 0.0F);
    }
  }
}

void packed_product(const PackedProduct& product, std::int64_t begin, std::int64_t end) {
  const PackedProductLoops& tile = loops();
  const std::int64_t columns = product.columns;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::int64_t first = panel * kPanelColumns;
    const std::int64_t width = std::min(kPanelColumns, columns - first);
    const float* const packed = product.packed + panel * product.depth * kPanelColumns;
    for (std::int64_t depth_begin = 0; depth_begin < std::max<std::int64_t>(product.depth, 1); depth_begin += kDepth) {
      const std::int64_t depth = std::min(kDepth, product.depth - depth_begin);
      for (std::int64_t row = 0; row < product.rows; row += tile.tile_rows) {
        const std::int64_t rows = std::min(tile.tile_rows, product.rows - row);
        float* const result = product.result + row * columns + first;
        // The last panel may be wider than the result: its sums are made aside.
        float aside[16 * kPanelColumns];
        const bool whole = width == kPanelColumns;
        float* const sums = whole ? result : aside;
        const std::int64_t sums_pitch = whole ? columns : kPanelColumns;
        for (std::int64_t i = 0; i < rows; ++i) {
          if (depth_begin > 0) {
            if (!whole) begin_row(result + i * columns, width, sums + i * sums_pitch);
          } else {
            const float* const addend =
                product.addend == nullptr ? nullptr : product.addend + (row + i) * product.addend_pitch + first;
            begin_row(addend, width, sums + i * sums_pitch);
          }
        }
        tile.multiply(product.left + row * product.left_pitch + depth_begin, product.left_pitch,
                      packed + depth_begin * kPanelColumns, sums, sums_pitch, rows, depth);
        for (std::int64_t i = 0; !whole && i < rows; ++i) {
          std::copy_n(sums + i * sums_pitch, width, result + i * columns);
        }
      }
    }
  }
}

}  // namespace tesser::kernels
