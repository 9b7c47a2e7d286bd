// The recurrent cells' loops of one instruction set; arguments as in kernels/recurrent_cells.h.
#pragma once

#include <cstdint>

#include "base/instruction_set.h"

namespace tesser::kernels {

struct RecurrentLoops {
  void (*lstm)(const float* gates, const float* c, float* h, float* c_next, float* activations, std::int64_t begin,
               std::int64_t end, std::int64_t hidden);
  void (*lstm_backward)(const float* dh, const float* dc_next, const float* c, const float* c_next,
                        const float* activations, float* dgates, float* dc, std::int64_t begin, std::int64_t end,
                        std::int64_t hidden);
  void (*gru)(const float* input_gates, const float* hidden_gates, const float* h, float* h_next, float* activations,
              std::int64_t begin, std::int64_t end, std::int64_t hidden);
  void (*gru_backward)(const float* dh_next, const float* hidden_gates, const float* h, const float* activations,
                       float* dinput_gates, float* dhidden_gates, float* dh, std::int64_t begin, std::int64_t end,
                       std::int64_t hidden);
  void (*sigmoid)(const float* x, float* result, std::int64_t count);
  void (*hyperbolic_tangent)(const float* x, float* result, std::int64_t count);
};

namespace portable {
extern const RecurrentLoops kRecurrentLoops;
}
namespace avx2 {
extern const RecurrentLoops kRecurrentLoops;
}
namespace avx512 {
extern const RecurrentLoops kRecurrentLoops;
}

}  // namespace tesser::kernels
