// Batch normalisation of channels-last tensors: x[rows, channels], rows being batch times positions.
//
// Sums over rows are taken in float32 over few rows and in double beyond, over a division into parts that depends on
// `rows` alone, so results are as exact as those of row-major kernels and the same for every number of threads. All
// arrays are float32 unless they say otherwise. Functions work on rows [begin, end) or on whole parts; pointers point
// at row 0. Any thread; no allocation.
#pragma once

#include <cstdint>

namespace tesser::kernels {

// Into how many parts sums over `rows` rows are divided, and the rows [begin, end) of one of them.
struct RowParts {
  explicit RowParts(std::int64_t rows);
  std::int64_t count = 0;
  std::int64_t begin(std::int64_t part) const { return part * rows_each < rows ? part * rows_each : rows; }
  std::int64_t end(std::int64_t part) const { return begin(part + 1); }
  std::int64_t rows = 0;
  std::int64_t rows_each = 0;
};

// sums[channels] = the sums of rows [begin, end).
void batch_norm_sums(const float* x, std::int64_t begin, std::int64_t end, std::int64_t channels, double* sums);
// sums[channels] = the sums of (x - mean)^2.
void batch_norm_square_sums(const float* x, const float* mean, std::int64_t begin, std::int64_t end,
                            std::int64_t channels, double* sums);
// y = x * scale + shift.
void batch_norm_apply(const float* x, const float* scale, const float* shift, float* y, std::int64_t begin,
                      std::int64_t end, std::int64_t channels);

// sums[channels] = the sums of dy, products[channels] = those of dy * (x - mean).
void batch_norm_gradient_sums(const float* dy, const float* x, const float* mean, std::int64_t begin, std::int64_t end,
                              std::int64_t channels, double* sums, double* products);
// dx = (dy - mean_dy - (x - mean) * slope) * scale.
void batch_norm_gradient_apply(const float* dy, const float* x, const float* mean, const float* mean_dy,
                               const float* slope, const float* scale, float* dx, std::int64_t begin, std::int64_t end,
                               std::int64_t channels);

}  // namespace tesser::kernels
