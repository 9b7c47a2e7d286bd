#include "kernels/batch_norm.h"

#include <algorithm>

#include "kernels/batch_norm_loops.h"

namespace tesser::kernels {
namespace {

// Enough parts for as many threads as processors have, enough rows each to be worth a thread's while.
constexpr std::int64_t kMostParts = 64;
constexpr std::int64_t kLeastRows = 128;

const BatchNormLoops& loops() {
#if defined(__x86_64__)
  if (best_instruction_set() == InstructionSet::kAvx512) return avx512::kBatchNormLoops;
  if (best_instruction_set() == InstructionSet::kAvx2) return avx2::kBatchNormLoops;
#endif
  return portable::kBatchNormLoops;
}

}  // namespace

RowParts::RowParts(std::int64_t all_rows) : rows(all_rows) {
  rows_each = std::max(kLeastRows, (rows + kMostParts - 1) / kMostParts);
  count = std::max<std::int64_t>(1, (rows + rows_each - 1) / rows_each);
}

void batch_norm_sums(const float* x, std::int64_t begin, std::int64_t end, std::int64_t channels, double* sums) {
  loops().sums(x + begin * channels, end - begin, channels, sums);
}

void batch_norm_square_sums(const float* x, const float* mean, std::int64_t begin, std::int64_t end,
                            std::int64_t channels, double* sums) {
  loops().square_sums(x + begin * channels, mean, end - begin, channels, sums);
}

void batch_norm_apply(const float* x, const float* scale, const float* shift, float* y, std::int64_t begin,
                      std::int64_t end, std::int64_t channels) {
  loops().apply(x + begin * channels, scale, shift, y + begin * channels, end - begin, channels);
}

void batch_norm_gradient_sums(const float* dy, const float* x, const float* mean, std::int64_t begin, std::int64_t end,
                              std::int64_t channels, double* sums, double* products) {
  loops().gradient_sums(dy + begin * channels, x + begin * channels, mean, end - begin, channels, sums, products);
}

void batch_norm_gradient_apply(const float* dy, const float* x, const float* mean, const float* mean_dy,
                               const float* slope, const float* scale, float* dx, std::int64_t begin, std::int64_t end,
                               std::int64_t channels) {
  loops().gradient_apply(dy + begin * channels, x + begin * channels, mean, mean_dy, slope, scale,
                         dx + begin * channels, end - begin, channels);
}

}  // namespace tesser::kernels
