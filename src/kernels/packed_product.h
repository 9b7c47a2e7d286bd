// Products of float32 matrices with one right operand that is used many times, as the weights of an unrolled loop are:
// it is brought into panels once, which the products then read from front to back.
//
// A panel holds kPanelColumns columns of the right operand, row after row; the last one is filled up with zeros. Every
// element of a product is one chain of fused multiply-adds in the order of the depth, so a result depends neither on
// the instruction set nor on how panels are divided over threads. Any thread; no allocation.
#pragma once

#include <cstdint>

namespace tesser::kernels {

inline constexpr std::int64_t kPanelColumns = 32;

constexpr std::int64_t panel_count(std::int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

// Whether this processor multiplies and adds in one instruction; without it products are correct but slow.
bool has_fast_packed_product();

// Panels [begin, end) of right[depth, columns], which lies row-major, or with columns one after the other
// (`transposed`: the memory of a row-major [columns, depth]). packed: panel_count(columns) * depth * kPanelColumns.
void pack_panels(const float* right, bool transposed, std::int64_t depth, std::int64_t columns, float* packed,
                 std::int64_t begin, std::int64_t end);

struct PackedProduct {
  const float* left = nullptr;  // [rows, depth], rows left_pitch apart
  std::int64_t left_pitch = 0;
  const float* packed = nullptr;
  const float* addend = nullptr;  // null; or rows of `columns`, addend_pitch apart: 0 is one row for all
  std::int64_t addend_pitch = 0;
  float* result = nullptr;  // [rows, columns], row-major; overlaps nothing
  std::int64_t rows = 0;
  std::int64_t depth = 0;
  std::int64_t columns = 0;
};

// result = addend + left right, its columns of the panels [begin, end).
void packed_product(const PackedProduct& product, std::int64_t begin, std::int64_t end);

}  // namespace tesser::kernels
