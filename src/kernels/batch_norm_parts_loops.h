// The loops of kernels/batch_norm_parts.h of one instruction set. `rows` functions have the channels of a position
// together, `plane` functions the positions of a channel; sums are added to what stands there.
#pragma once

#include <cstdint>

#include "base/instruction_set.h"

namespace tesser::kernels {

template <typename Element>
struct BatchNormPartLoopsOf {
  void (*row_sums)(const Element* x, std::int64_t rows, std::int64_t channels, double* sums, double* square_sums);
  void (*row_gradient_sums)(const Element* dy, const Element* x, const Element* mean, std::int64_t rows,
                            std::int64_t channels, double* sums, double* products);
  void (*row_apply)(const Element* x, const Element* scale, const Element* shift, Element* y, std::int64_t rows,
                    std::int64_t channels);
  void (*row_gradient_apply)(const Element* dy, const Element* x, const Element* mean, const Element* mean_dy,
                             const Element* slope, const Element* scale, Element* dx, std::int64_t rows,
                             std::int64_t channels);
  void (*plane_sums)(const Element* x, std::int64_t count, double* sum, double* square_sum);
  void (*plane_gradient_sums)(const Element* dy, const Element* x, Element mean, std::int64_t count, double* sum,
                              double* product);
  void (*plane_apply)(const Element* x, Element scale, Element shift, Element* y, std::int64_t count);
  void (*plane_gradient_apply)(const Element* dy, const Element* x, Element mean, Element mean_dy, Element slope,
                               Element scale, Element* dx, std::int64_t count);
};

struct BatchNormPartLoops {
  BatchNormPartLoopsOf<float> of_float;
  BatchNormPartLoopsOf<double> of_double;
};

namespace portable {
extern const BatchNormPartLoops kBatchNormPartLoops;
}
namespace avx2 {
extern const BatchNormPartLoops kBatchNormPartLoops;
}
namespace avx512 {
extern const BatchNormPartLoops kBatchNormPartLoops;
}

}  // namespace tesser::kernels
