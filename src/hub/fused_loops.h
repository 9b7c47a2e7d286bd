// The sum of replicas' gradients and the optimizer's update in one loop over memory: what most steps of most jobs are.
// Bits are those of SumLoops::sum and optimizer::sgd_update or adam_update one after the other. Compiled once for each
// instruction set.
#pragma once

#include <cstdint>

#include "optimizer/update_loops.h"

namespace tesser::hub {

inline constexpr int kMostFused = 8;  // sources

// False where a case has no loop of its own; nothing is changed then. Sources: 1 to kMostFused of them, float32. Arrays
// must not overlap.
struct FusedLoops {
  // `buffer` is null without momentum. The first step with momentum has no loop.
  bool (*sgd)(float* weights, float* buffer, const float* const* sources, int count, std::int64_t elements,
              const optimizer::SgdScalars<float>& scalars);
  // amsgrad has no loop, nor have betas of a half and less.
  bool (*adam)(float* weights, float* average, float* square, const float* const* sources, int count,
               std::int64_t elements, const optimizer::AdamScalars<float>& scalars);
};

// Of the best instruction set that this processor has.
const FusedLoops& fused_loops();

namespace portable {
extern const FusedLoops kFusedLoops;
}
namespace avx2 {
extern const FusedLoops kFusedLoops;
}
namespace avx512 {
extern const FusedLoops kFusedLoops;
}

}  // namespace tesser::hub
