#include "optimizer/update.h"

#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "optimizer/update_loops.h"

namespace tesser::optimizer {

namespace {

template <typename Element>
const UpdateLoops<Element>& loops();

template <>
const UpdateLoops<float>& loops<float>() {
#if defined(__x86_64__)
  if (best_instruction_set() == InstructionSet::kAvx512) return avx512::kFloatLoops;
  if (best_instruction_set() == InstructionSet::kAvx2) return avx2::kFloatLoops;
#endif
  return portable::kFloatLoops;
}

template <>
const UpdateLoops<double>& loops<double>() {
#if defined(__x86_64__)
  if (best_instruction_set() == InstructionSet::kAvx512) return avx512::kDoubleLoops;
  if (best_instruction_set() == InstructionSet::kAvx2) return avx2::kDoubleLoops;
#endif
  return portable::kDoubleLoops;
}

template <typename Element>
SgdScalars<Element> scalars_of(const SgdSettings& settings, double learning_rate, std::int64_t step,
                               Element gradient_scale) {
  return {
      .gradient_scale = settings.maximize ? -gradient_scale : gradient_scale,
      .weight_decay = static_cast<Element>(settings.weight_decay),
      .momentum = static_cast<Element>(settings.momentum),
      .undampened = static_cast<Element>(1 - settings.dampening),
      .negative_rate = static_cast<Element>(-learning_rate),
      .first_step = step == 0,
      .nesterov = settings.nesterov,
  };
}

template <typename Element>
AdamScalars<Element> scalars_of(const AdamSettings& settings, double learning_rate, std::int64_t step,
                                Element gradient_scale) {
  const auto t = static_cast<double>(step + 1);
  const double correction1 = 1 - std::pow(settings.beta1, t);
  const double correction2 = 1 - std::pow(settings.beta2, t);
  const bool decoupled = settings.decoupled_weight_decay && settings.weight_decay != 0;
  return {
      .gradient_scale = settings.maximize ? -gradient_scale : gradient_scale,
      .weight_decay = decoupled ? Element{0} : static_cast<Element>(settings.weight_decay),
      .keep = static_cast<Element>(1 - learning_rate * settings.weight_decay),
      .rate1 = static_cast<Element>(1 - settings.beta1),
      .beta2 = static_cast<Element>(settings.beta2),
      .rate2 = static_cast<Element>(1 - settings.beta2),
      .correction2_root = static_cast<Element>(std::sqrt(correction2)),
      .eps = static_cast<Element>(settings.eps),
      .negative_step_size = static_cast<Element>(-(learning_rate / correction1)),
      .decoupled = decoupled,
  };
}

template <typename Element>
void sgd(Element* parameter, const Element* gradient, Element* buffer, std::int64_t begin, std::int64_t end,
         const SgdSettings& settings, double learning_rate, std::int64_t step, Element gradient_scale) {
  TESSER_CHECK((buffer != nullptr) == (settings.momentum != 0),
               "a momentum buffer is given where momentum is not 0, and only there");
  const SgdScalars<Element> scalars = scalars_of(settings, learning_rate, step, gradient_scale);
  loops<Element>().sgd(parameter + begin, gradient + begin, buffer == nullptr ? nullptr : buffer + begin, end - begin,
                       scalars);
}

template <typename Element>
void adam(Element* parameter, const Element* gradient, Element* average, Element* square, Element* maximum,
          std::int64_t begin, std::int64_t end, const AdamSettings& settings, double learning_rate, std::int64_t step,
          Element gradient_scale) {
  const AdamScalars<Element> scalars = scalars_of(settings, learning_rate, step, gradient_scale);
  loops<Element>().adam(parameter + begin, gradient + begin, average + begin, square + begin,
                        maximum == nullptr ? nullptr : maximum + begin, end - begin, scalars);
}

}  // namespace

void sgd_update(float* parameter, const float* gradient, float* momentum_buffer, std::int64_t begin, std::int64_t end,
                const SgdSettings& settings, double learning_rate, std::int64_t step, float gradient_scale) {
  sgd(parameter, gradient, momentum_buffer, begin, end, settings, learning_rate, step, gradient_scale);
}

void sgd_update(double* parameter, const double* gradient, double* momentum_buffer, std::int64_t begin,
                std::int64_t end, const SgdSettings& settings, double learning_rate, std::int64_t step,
                double gradient_scale) {
  sgd(parameter, gradient, momentum_buffer, begin, end, settings, learning_rate, step, gradient_scale);
}

void adam_update(float* parameter, const float* gradient, float* exp_avg, float* exp_avg_sq, float* max_exp_avg_sq,
                 std::int64_t begin, std::int64_t end, const AdamSettings& settings, double learning_rate,
                 std::int64_t step, float gradient_scale) {
  adam(parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, begin, end, settings, learning_rate, step,
       gradient_scale);
}

void adam_update(double* parameter, const double* gradient, double* exp_avg, double* exp_avg_sq, double* max_exp_avg_sq,
                 std::int64_t begin, std::int64_t end, const AdamSettings& settings, double learning_rate,
                 std::int64_t step, double gradient_scale) {
  adam(parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, begin, end, settings, learning_rate, step,
       gradient_scale);
}

SgdScalars<float> sgd_scalars(const SgdSettings& settings, double learning_rate, std::int64_t step,
                              float gradient_scale) {
  return scalars_of(settings, learning_rate, step, gradient_scale);
}

AdamScalars<float> adam_scalars(const AdamSettings& settings, double learning_rate, std::int64_t step,
                                float gradient_scale) {
  return scalars_of(settings, learning_rate, step, gradient_scale);
}

void sgd_update(float* parameter, const float* gradient, float* momentum_buffer, std::int64_t count,
                const SgdScalars<float>& scalars) {
  loops<float>().sgd(parameter, gradient, momentum_buffer, count, scalars);
}

void adam_update(float* parameter, const float* gradient, float* exp_avg, float* exp_avg_sq, float* max_exp_avg_sq,
                 std::int64_t count, const AdamScalars<float>& scalars) {
  loops<float>().adam(parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, count, scalars);
}

}  // namespace tesser::optimizer
