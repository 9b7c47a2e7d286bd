// Compiled once for each instruction set; see cmake/TesserVectorized.cmake. The loops are plain, for the compiler to
// vectorise.
//
// Which products PyTorch joins with a sum into one rounding (fused multiply-add) follows its CPU kernels: add with
// alpha, lerp and addcmul do.
#include "optimizer/update_loops.h"

namespace tesser::optimizer::TESSER_LOOPS {

namespace {

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float root(float a) { return __builtin_sqrtf(a); }
inline double root(double a) { return __builtin_sqrt(a); }

enum class Momentum { kNone, kFirst, kFirstNesterov, kPlain, kNesterov };

template <Momentum momentum, bool decays, typename Element>
void sgd_loop(Element* __restrict parameter, const Element* __restrict gradient, Element* __restrict buffer,
              std::int64_t count, const SgdScalars<Element>& given) {
  const SgdScalars<Element> scalars = given;
  for (std::int64_t i = 0; i < count; ++i) {
    Element direction = gradient[i] * scalars.gradient_scale;
    if (decays) direction = fused(parameter[i], scalars.weight_decay, direction);
    if (momentum != Momentum::kNone) {
      const bool is_first = momentum == Momentum::kFirst || momentum == Momentum::kFirstNesterov;
      const bool is_nesterov = momentum == Momentum::kFirstNesterov || momentum == Momentum::kNesterov;
      const Element next = is_first ? direction : fused(direction, scalars.undampened, buffer[i] * scalars.momentum);
      buffer[i] = next;
      direction = is_nesterov ? fused(next, scalars.momentum, direction) : next;
    }
    parameter[i] = fused(direction, scalars.negative_rate, parameter[i]);
  }
}

template <Momentum momentum, typename Element>
void sgd_with(Element* parameter, const Element* gradient, Element* buffer, std::int64_t count,
              const SgdScalars<Element>& scalars) {
  const auto loop = scalars.weight_decay != 0 ? sgd_loop<momentum, true, Element> : sgd_loop<momentum, false, Element>;
  loop(parameter, gradient, buffer, count, scalars);
}

template <typename Element>
void sgd(Element* parameter, const Element* gradient, Element* buffer, std::int64_t count,
         const SgdScalars<Element>& scalars) {
  auto* chosen = sgd_with<Momentum::kNone, Element>;
  if (buffer != nullptr) {
    if (scalars.first_step) {
      chosen = scalars.nesterov ? sgd_with<Momentum::kFirstNesterov, Element> : sgd_with<Momentum::kFirst, Element>;
    } else {
      chosen = scalars.nesterov ? sgd_with<Momentum::kNesterov, Element> : sgd_with<Momentum::kPlain, Element>;
    }
  }
  chosen(parameter, gradient, buffer, count, scalars);
}

enum class Decay { kNone, kGradient, kParameter };

// lerp's two forms: from the nearer end, as PyTorch chooses by the weight.
template <Decay decay, bool amsgrad, bool from_start, typename Element>
void adam_loop(Element* __restrict parameter, const Element* __restrict gradient, Element* __restrict average,
               Element* __restrict square, Element* __restrict maximum, std::int64_t count,
               const AdamScalars<Element>& given) {
  const AdamScalars<Element> scalars = given;
  for (std::int64_t i = 0; i < count; ++i) {
    Element value = parameter[i];
    Element direction = gradient[i] * scalars.gradient_scale;
    if (decay == Decay::kParameter) value *= scalars.keep;
    if (decay == Decay::kGradient) direction = fused(value, scalars.weight_decay, direction);
    const Element distance = direction - average[i];
    const Element next_average =
        from_start ? fused(scalars.rate1, distance, average[i]) : fused(scalars.rate1 - 1, distance, direction);
    average[i] = next_average;
    const Element next_square = fused(scalars.rate2 * direction, direction, square[i] * scalars.beta2);
    square[i] = next_square;
    Element second_moment = next_square;
    if (amsgrad) {
      const Element before = maximum[i];
      // Not a number stays one, from either side.
      second_moment = before > next_square || before != before ? before : next_square;
      maximum[i] = second_moment;
    }
    const Element denominator = root(second_moment) / scalars.correction2_root + scalars.eps;
    parameter[i] = value + scalars.negative_step_size * next_average / denominator;
  }
}

template <Decay decay, bool amsgrad, typename Element>
void adam_with(Element* parameter, const Element* gradient, Element* average, Element* square, Element* maximum,
               std::int64_t count, const AdamScalars<Element>& scalars) {
  const auto loop = scalars.rate1 < Element{0.5} ? adam_loop<decay, amsgrad, true, Element>
                                                 : adam_loop<decay, amsgrad, false, Element>;
  loop(parameter, gradient, average, square, maximum, count, scalars);
}

template <bool amsgrad, typename Element>
void adam_decaying(Element* parameter, const Element* gradient, Element* average, Element* square, Element* maximum,
                   std::int64_t count, const AdamScalars<Element>& scalars) {
  auto* chosen = adam_with<Decay::kNone, amsgrad, Element>;
  if (scalars.decoupled) {
    chosen = adam_with<Decay::kParameter, amsgrad, Element>;
  } else if (scalars.weight_decay != 0) {
    chosen = adam_with<Decay::kGradient, amsgrad, Element>;
  }
  chosen(parameter, gradient, average, square, maximum, count, scalars);
}

template <typename Element>
void adam(Element* parameter, const Element* gradient, Element* average, Element* square, Element* maximum,
          std::int64_t count, const AdamScalars<Element>& scalars) {
  auto* chosen = maximum != nullptr ? adam_decaying<true, Element> : adam_decaying<false, Element>;
  chosen(parameter, gradient, average, square, maximum, count, scalars);
}

}  // namespace

const UpdateLoops<float> kFloatLoops = {sgd<float>, adam<float>};
const UpdateLoops<double> kDoubleLoops = {sgd<double>, adam<double>};

}  // namespace tesser::optimizer::TESSER_LOOPS
