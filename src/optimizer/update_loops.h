// The update loops of one instruction set, and the scalars they take: what update.cc prepares once a call.
#pragma once

#include <cstdint>

#include "base/instruction_set.h"

namespace tesser::optimizer {

template <typename Element>
struct SgdScalars {
  Element gradient_scale;  // negative to maximize
  Element weight_decay;
  Element momentum;
  Element undampened;  // 1 - dampening
  Element negative_rate;
  bool first_step;
  bool nesterov;
};

template <typename Element>
struct AdamScalars {
  Element gradient_scale;  // negative to maximize
  Element weight_decay;    // added to the gradient; 0 when decoupled
  Element keep;            // the parameter's factor under decoupled weight decay, else 1
  Element rate1;           // 1 - beta1
  Element beta2;
  Element rate2;  // 1 - beta2
  Element correction2_root;
  Element eps;
  Element negative_step_size;
  bool decoupled;
};

template <typename Element>
struct UpdateLoops {
  void (*sgd)(Element* parameter, const Element* gradient, Element* buffer, std::int64_t count,
              const SgdScalars<Element>& scalars);
  void (*adam)(Element* parameter, const Element* gradient, Element* average, Element* square, Element* maximum,
               std::int64_t count, const AdamScalars<Element>& scalars);
};

namespace portable {
extern const UpdateLoops<float> kFloatLoops;
extern const UpdateLoops<double> kDoubleLoops;
}  // namespace portable
namespace avx2 {
extern const UpdateLoops<float> kFloatLoops;
extern const UpdateLoops<double> kDoubleLoops;
}  // namespace avx2
namespace avx512 {
extern const UpdateLoops<float> kFloatLoops;
extern const UpdateLoops<double> kDoubleLoops;
}  // namespace avx512

}  // namespace tesser::optimizer
