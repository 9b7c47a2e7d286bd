// Batch normalisation in steps that can each be cut over batch, positions and channels (docs/formats/operators.md).
//
// x[outer, channels, inner] row-major: channels-last and two-dimensional tensors have inner 1, row-major activations
// their positions. Sums are taken in double throughout, so that a variance may be had from the sum of squares, and the
// sums of parts add up to that of the whole but for double's rounding. Functions work on [begin, end) of the `outer`
// rows; pointers point at row 0. Element is float or double. Any thread; no allocation.
#pragma once

#include <cstdint>

namespace tesser::kernels {

struct BatchNormShape {
  std::int64_t channels = 1;
  std::int64_t inner = 1;
};

// Adds to sums[channels] and square_sums[channels].
template <typename Element>
void batch_norm_part_sums(const Element* x, const BatchNormShape& shape, std::int64_t begin, std::int64_t end,
                          double* sums, double* square_sums);
// Adds the sums of dy to sums[channels] and those of dy * (x - mean) to products[channels].
template <typename Element>
void batch_norm_part_gradient_sums(const Element* dy, const Element* x, const Element* mean,
                                   const BatchNormShape& shape, std::int64_t begin, std::int64_t end, double* sums,
                                   double* products);
// y = x * scale + shift.
template <typename Element>
void batch_norm_part_apply(const Element* x, const Element* scale, const Element* shift, Element* y,
                           const BatchNormShape& shape, std::int64_t begin, std::int64_t end);
// dx = (dy - mean_dy - (x - mean) * slope) * scale.
template <typename Element>
void batch_norm_part_gradient_apply(const Element* dy, const Element* x, const Element* mean, const Element* mean_dy,
                                    const Element* slope, const Element* scale, Element* dx,
                                    const BatchNormShape& shape, std::int64_t begin, std::int64_t end);

}  // namespace tesser::kernels
