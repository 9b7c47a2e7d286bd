// Compiled once for each instruction set; see cmake/TesserVectorized.cmake. The loops are plain, for the compiler to
// vectorise.
#include "optimizer/update_elements.h"

namespace tesser::optimizer::TESSER_LOOPS {

namespace {

template <Momentum momentum, bool decays, typename Element>
void sgd_loop(Element* __restrict parameter, const Element* __restrict gradient, Element* __restrict buffer,
              std::int64_t count, const SgdScalars<Element>& given) {
  const SgdScalars<Element> scalars = given;
  for (std::int64_t i = 0; i < count; ++i) {
    sgd_element<momentum, decays>(parameter[i], gradient[i], momentum == Momentum::kNone ? nullptr : buffer + i,
                                  scalars);
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

template <Decay decay, bool amsgrad, bool from_start, typename Element>
void adam_loop(Element* __restrict parameter, const Element* __restrict gradient, Element* __restrict average,
               Element* __restrict square, Element* __restrict maximum, std::int64_t count,
               const AdamScalars<Element>& given) {
  const AdamScalars<Element> scalars = given;
  for (std::int64_t i = 0; i < count; ++i) {
    adam_element<decay, amsgrad, from_start>(parameter[i], gradient[i], average[i], square[i],
                                             amsgrad ? maximum + i : nullptr, scalars);
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
