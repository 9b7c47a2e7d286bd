// The batch normalisation loops of one instruction set; arguments as in kernels/batch_norm.h, with pointers at the
// first row.
#pragma once

#include <cstdint>

#include "base/instruction_set.h"

namespace tesser::kernels {

struct BatchNormLoops {
  void (*sums)(const float* x, std::int64_t rows, std::int64_t channels, double* sums);
  void (*square_sums)(const float* x, const float* mean, std::int64_t rows, std::int64_t channels, double* sums);
  void (*apply)(const float* x, const float* scale, const float* shift, float* y, std::int64_t rows,
                std::int64_t channels);
  void (*gradient_sums)(const float* dy, const float* x, const float* mean, std::int64_t rows, std::int64_t channels,
                        double* sums, double* products);
  void (*gradient_apply)(const float* dy, const float* x, const float* mean, const float* mean_dy, const float* slope,
                         const float* scale, float* dx, std::int64_t rows, std::int64_t channels);
};

namespace portable {
extern const BatchNormLoops kBatchNormLoops;
}
namespace avx2 {
extern const BatchNormLoops kBatchNormLoops;
}
namespace avx512 {
extern const BatchNormLoops kBatchNormLoops;
}

}  // namespace tesser::kernels
