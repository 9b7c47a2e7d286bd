// How an optimizer changes one element, for loops over many: this folder's, and those of src/hub that sum several
// gradients as they go. Only for sources of tesser_vectorized, which each have a copy (cmake/TesserVectorized.cmake).
//
// Which products PyTorch joins with a sum into one rounding (fused multiply-add) follows its CPU kernels: add with
// alpha, lerp and addcmul do.
#pragma once

#include "optimizer/update_loops.h"

namespace tesser::optimizer::TESSER_LOOPS {
namespace {

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float root(float a) { return __builtin_sqrtf(a); }
inline double root(double a) { return __builtin_sqrt(a); }

enum class Momentum { kNone, kFirst, kFirstNesterov, kPlain, kNesterov };

// `buffer` is not touched with Momentum::kNone.
template <Momentum momentum, bool decays, typename Element>
inline void sgd_element(Element& parameter, Element gradient, Element* buffer, const SgdScalars<Element>& scalars) {
  Element direction = gradient * scalars.gradient_scale;
  if (decays) direction = fused(parameter, scalars.weight_decay, direction);
  if (momentum != Momentum::kNone) {
    const bool is_first = momentum == Momentum::kFirst || momentum == Momentum::kFirstNesterov;
    const bool is_nesterov = momentum == Momentum::kFirstNesterov || momentum == Momentum::kNesterov;
    const Element next = is_first ? direction : fused(direction, scalars.undampened, *buffer * scalars.momentum);
    *buffer = next;
    direction = is_nesterov ? fused(next, scalars.momentum, direction) : next;
  }
  parameter = fused(direction, scalars.negative_rate, parameter);
}

enum class Decay { kNone, kGradient, kParameter };

// lerp's two forms: from the nearer end, as PyTorch chooses by the weight. `maximum` is touched with amsgrad only.
template <Decay decay, bool amsgrad, bool from_start, typename Element>
inline void adam_element(Element& parameter, Element gradient, Element& average, Element& square, Element* maximum,
                         const AdamScalars<Element>& scalars) {
  Element value = parameter;
  Element direction = gradient * scalars.gradient_scale;
  if (decay == Decay::kParameter) value *= scalars.keep;
  if (decay == Decay::kGradient) direction = fused(value, scalars.weight_decay, direction);
  const Element distance = direction - average;
  const Element next_average =
      from_start ? fused(scalars.rate1, distance, average) : fused(scalars.rate1 - 1, distance, direction);
  average = next_average;
  const Element next_square = fused(scalars.rate2 * direction, direction, square * scalars.beta2);
  square = next_square;
  Element second_moment = next_square;
  if (amsgrad) {
    const Element before = *maximum;
    // Not a number stays one, from either side.
    second_moment = before > next_square || before != before ? before : next_square;
    *maximum = second_moment;
  }
  const Element denominator = root(second_moment) / scalars.correction2_root + scalars.eps;
  parameter = value + scalars.negative_step_size * next_average / denominator;
}

}  // namespace
}  // namespace tesser::optimizer::TESSER_LOOPS
