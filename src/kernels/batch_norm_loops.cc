#include "kernels/batch_norm_loops.h"

namespace tesser::kernels::TESSER_LOOPS {
namespace {

// Rows summed in float32 before the sum goes on in double.
constexpr std::int64_t kFloatRows = 16;

// Calls tile(first channel, width) with constant widths as far as they go, so that the compiler keeps a tile's sums in
// registers.
template <typename Tile>
inline void over_channels(std::int64_t channels, const Tile& tile) {
  std::int64_t c = 0;
  for (; c + 64 <= channels; c += 64) tile.template operator()<64>(c);
  for (; c + 16 <= channels; c += 16) tile.template operator()<16>(c);
  for (; c + 4 <= channels; c += 4) tile.template operator()<4>(c);
  for (; c < channels; ++c) tile.template operator()<1>(c);
}

void sums(const float* x, std::int64_t rows, std::int64_t channels, double* sums) {
  for (std::int64_t c = 0; c < channels; ++c) sums[c] = 0;
  for (std::int64_t first = 0; first < rows; first += kFloatRows) {
    const std::int64_t count = rows - first < kFloatRows ? rows - first : kFloatRows;
    over_channels(channels, [&]<int kWidth>(std::int64_t c) {
      float sum[kWidth] = {};
      for (std::int64_t r = 0; r < count; ++r) {
        const float* row = x + (first + r) * channels + c;
        for (int k = 0; k < kWidth; ++k) sum[k] += row[k];
      }
      for (int k = 0; k < kWidth; ++k) sums[c + k] += sum[k];
    });
  }
}

void square_sums(const float* x, const float* mean, std::int64_t rows, std::int64_t channels, double* sums) {
  for (std::int64_t c = 0; c < channels; ++c) sums[c] = 0;
  for (std::int64_t first = 0; first < rows; first += kFloatRows) {
    const std::int64_t count = rows - first < kFloatRows ? rows - first : kFloatRows;
    over_channels(channels, [&]<int kWidth>(std::int64_t c) {
      float sum[kWidth] = {};
      for (std::int64_t r = 0; r < count; ++r) {
        const float* row = x + (first + r) * channels + c;
        for (int k = 0; k < kWidth; ++k) {
          const float distance = row[k] - mean[c + k];
          sum[k] += distance * distance;
        }
      }
      for (int k = 0; k < kWidth; ++k) sums[c + k] += sum[k];
    });
  }
}

void apply(const float* __restrict x, const float* __restrict scale, const float* __restrict shift, float* __restrict y,
           std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * channels;
    float* to = y + r * channels;
    for (std::int64_t c = 0; c < channels; ++c) to[c] = from[c] * scale[c] + shift[c];
  }
}

void gradient_sums(const float* dy, const float* x, const float* mean, std::int64_t rows, std::int64_t channels,
                   double* sums, double* products) {
  for (std::int64_t c = 0; c < channels; ++c) sums[c] = products[c] = 0;
  for (std::int64_t first = 0; first < rows; first += kFloatRows) {
    const std::int64_t count = rows - first < kFloatRows ? rows - first : kFloatRows;
    over_channels(channels, [&]<int kWidth>(std::int64_t c) {
      float sum[kWidth] = {};
      float product[kWidth] = {};
      for (std::int64_t r = 0; r < count; ++r) {
        const float* gradient = dy + (first + r) * channels + c;
        const float* row = x + (first + r) * channels + c;
        for (int k = 0; k < kWidth; ++k) {
          sum[k] += gradient[k];
          product[k] += gradient[k] * (row[k] - mean[c + k]);
        }
      }
      for (int k = 0; k < kWidth; ++k) {
        sums[c + k] += sum[k];
        products[c + k] += product[k];
      }
    });
  }
}

void gradient_apply(const float* __restrict dy, const float* __restrict x, const float* __restrict mean,
                    const float* __restrict mean_dy, const float* __restrict slope, const float* __restrict scale,
                    float* __restrict dx, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = r * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      dx[at + c] = (dy[at + c] - mean_dy[c] - (x[at + c] - mean[c]) * slope[c]) * scale[c];
    }
  }
}

}  // namespace

extern const BatchNormLoops kBatchNormLoops{&sums, &square_sums, &apply, &gradient_sums, &gradient_apply};

}  // namespace tesser::kernels::TESSER_LOOPS
