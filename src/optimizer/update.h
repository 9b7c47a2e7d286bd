// Optimizer updates in place: SGD with momentum, dampening, Nesterov and weight decay; Adam, AdamW, amsgrad.
//
// Numbers are those of torch.optim with foreach=False: the same operations in the same order, scalars in double and
// rounded to the element type where PyTorch rounds them. docs/exactness.md states how close. Every instruction set
// gives the same bits, and so does every division of a tensor into ranges. One pass over memory, no allocation.
//
// Functions update elements [begin, end) of arrays that start at element 0; arrays must not overlap. `step` is the
// number of steps done before, from 0. `gradient_scale` multiplies each gradient as it is read (clipping). Any thread,
// and any number of them on disjoint ranges.
#pragma once

#include <cstdint>

#include "optimizer/update_loops.h"

namespace tesser::optimizer {

struct SgdSettings {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

struct AdamSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  // AdamW
  bool maximize = false;
};

// momentum_buffer is null where momentum is 0, and only there. At step 0 its content is not read: it becomes the
// gradient.
void sgd_update(float* parameter, const float* gradient, float* momentum_buffer, std::int64_t begin, std::int64_t end,
                const SgdSettings& settings, double learning_rate, std::int64_t step, float gradient_scale = 1);
void sgd_update(double* parameter, const double* gradient, double* momentum_buffer, std::int64_t begin,
                std::int64_t end, const SgdSettings& settings, double learning_rate, std::int64_t step,
                double gradient_scale = 1);

// max_exp_avg_sq is given for amsgrad and null otherwise.
void adam_update(float* parameter, const float* gradient, float* exp_avg, float* exp_avg_sq, float* max_exp_avg_sq,
                 std::int64_t begin, std::int64_t end, const AdamSettings& settings, double learning_rate,
                 std::int64_t step, float gradient_scale = 1);
void adam_update(double* parameter, const double* gradient, double* exp_avg, double* exp_avg_sq, double* max_exp_avg_sq,
                 std::int64_t begin, std::int64_t end, const AdamSettings& settings, double learning_rate,
                 std::int64_t step, double gradient_scale = 1);

// For callers with many short ranges: what the calls above compute first, once for all, and the update of `count`
// elements with it.
SgdScalars<float> sgd_scalars(const SgdSettings& settings, double learning_rate, std::int64_t step,
                              float gradient_scale);
AdamScalars<float> adam_scalars(const AdamSettings& settings, double learning_rate, std::int64_t step,
                                float gradient_scale);
void sgd_update(float* parameter, const float* gradient, float* momentum_buffer, std::int64_t count,
                const SgdScalars<float>& scalars);
void adam_update(float* parameter, const float* gradient, float* exp_avg, float* exp_avg_sq, float* max_exp_avg_sq,
                 std::int64_t count, const AdamScalars<float>& scalars);

}  // namespace tesser::optimizer
