// Compiled once for each instruction set; see cmake/TesserVectorized.cmake. A tile's sums stay in registers over the
// whole depth: 8 x 2 vectors of 32 registers with AVX-512, 6 x 2 of 16 with AVX2.
#include "kernels/packed_product_loops.h"

#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tesser::kernels::TESSER_LOOPS {

namespace {

constexpr std::int64_t kColumns = 32;  // kPanelColumns
constexpr int kVectors = 2;            // side by side in a tile

#if defined(__AVX512F__)
using Vector = __m512;
constexpr std::int64_t kTileRows = 8;
inline Vector load(const float* from) { return _mm512_loadu_ps(from); }
inline Vector spread(float value) { return _mm512_set1_ps(value); }
inline Vector fused(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline void store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
#elif defined(__AVX2__)
using Vector = __m256;
constexpr std::int64_t kTileRows = 6;
inline Vector load(const float* from) { return _mm256_loadu_ps(from); }
inline Vector spread(float value) { return _mm256_set1_ps(value); }
inline Vector fused(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
inline void store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
#else
using Vector = float;
constexpr std::int64_t kTileRows = 2;
inline Vector load(const float* from) { return *from; }
inline Vector spread(float value) { return value; }
inline Vector fused(Vector a, Vector b, Vector c) { return __builtin_fmaf(a, b, c); }
inline void store(float* to, Vector value) { *to = value; }
#endif

constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(float);

template <std::int64_t kRows>
void multiply_rows(const float* left, std::int64_t left_pitch, const float* panel, float* sums, std::int64_t sums_pitch,
                   std::int64_t depth) {
  for (std::int64_t column = 0; column < kColumns; column += kVectors * kLanes) {
    Vector total[kRows][kVectors];
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (int v = 0; v < kVectors; ++v) total[row][v] = load(sums + row * sums_pitch + column + v * kLanes);
    }
    for (std::int64_t k = 0; k < depth; ++k) {
      const float* const from = panel + k * kColumns + column;
      const Vector first = load(from);
      const Vector second = load(from + kLanes);
#pragma GCC unroll 8
      for (std::int64_t row = 0; row < kRows; ++row) {
        const Vector value = spread(left[row * left_pitch + k]);
        total[row][0] = fused(value, first, total[row][0]);
        total[row][1] = fused(value, second, total[row][1]);
      }
    }
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (int v = 0; v < kVectors; ++v) store(sums + row * sums_pitch + column + v * kLanes, total[row][v]);
    }
  }
}

template <std::int64_t kRows>
void multiply_at_most(const float* left, std::int64_t left_pitch, const float* panel, float* sums,
                      std::int64_t sums_pitch, std::int64_t rows, std::int64_t depth) {
  if (rows == kRows) return multiply_rows<kRows>(left, left_pitch, panel, sums, sums_pitch, depth);
  if constexpr (kRows > 1) {
    multiply_at_most<kRows - 1>(left, left_pitch, panel, sums, sums_pitch, rows, depth);
  }
}

}  // namespace

const PackedProductLoops kPackedProductLoops = {kTileRows, multiply_at_most<kTileRows>};

}  // namespace tesser::kernels::TESSER_LOOPS
