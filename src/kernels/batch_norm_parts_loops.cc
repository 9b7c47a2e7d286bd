#include "kernels/batch_norm_parts_loops.h"

namespace tesser::kernels::TESSER_LOOPS {
namespace {

// Calls tile(first channel, width) with constant widths as far as they go, so that the compiler keeps a tile's sums in
// registers.
template <typename Tile>
inline void over_channels(std::int64_t channels, const Tile& tile) {
  std::int64_t c = 0;
  for (; c + 32 <= channels; c += 32) tile.template operator()<32>(c);
  for (; c + 8 <= channels; c += 8) tile.template operator()<8>(c);
  for (; c < channels; ++c) tile.template operator()<1>(c);
}

// Rows that a tile takes before the next one, so that all tiles find them in the cache.
constexpr std::int64_t kRows = 64;

template <typename Element>
void row_sums(const Element* x, std::int64_t rows, std::int64_t channels, double* sums, double* square_sums) {
  for (std::int64_t first = 0; first < rows; first += kRows) {
    const std::int64_t end = first + kRows < rows ? first + kRows : rows;
    over_channels(channels, [&]<int kWidth>(std::int64_t c) {
      double sum[kWidth] = {};
      double square[kWidth] = {};
      for (std::int64_t r = first; r < end; ++r) {
        const Element* row = x + r * channels + c;
        for (int k = 0; k < kWidth; ++k) {
          const double value = row[k];
          sum[k] += value;
          square[k] += value * value;
        }
      }
      for (int k = 0; k < kWidth; ++k) {
        sums[c + k] += sum[k];
        square_sums[c + k] += square[k];
      }
    });
  }
}

template <typename Element>
void row_gradient_sums(const Element* dy, const Element* x, const Element* mean, std::int64_t rows,
                       std::int64_t channels, double* sums, double* products) {
  for (std::int64_t first = 0; first < rows; first += kRows) {
    const std::int64_t end = first + kRows < rows ? first + kRows : rows;
    over_channels(channels, [&]<int kWidth>(std::int64_t c) {
      double sum[kWidth] = {};
      double product[kWidth] = {};
      for (std::int64_t r = first; r < end; ++r) {
        const Element* gradient = dy + r * channels + c;
        const Element* row = x + r * channels + c;
        for (int k = 0; k < kWidth; ++k) {
          const double value = gradient[k];
          sum[k] += value;
          product[k] += value * (static_cast<double>(row[k]) - static_cast<double>(mean[c + k]));
        }
      }
      for (int k = 0; k < kWidth; ++k) {
        sums[c + k] += sum[k];
        products[c + k] += product[k];
      }
    });
  }
}

template <typename Element>
void row_apply(const Element* __restrict x, const Element* __restrict scale, const Element* __restrict shift,
               Element* __restrict y, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const Element* from = x + r * channels;
    Element* to = y + r * channels;
    for (std::int64_t c = 0; c < channels; ++c) to[c] = from[c] * scale[c] + shift[c];
  }
}

template <typename Element>
void row_gradient_apply(const Element* __restrict dy, const Element* __restrict x, const Element* __restrict mean,
                        const Element* __restrict mean_dy, const Element* __restrict slope,
                        const Element* __restrict scale, Element* __restrict dx, std::int64_t rows,
                        std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = r * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      dx[at + c] = (dy[at + c] - mean_dy[c] - (x[at + c] - mean[c]) * slope[c]) * scale[c];
    }
  }
}

constexpr int kLanes = 16;  // sums of a plane that run beside each other

// Adds lanes up pairwise.
inline double total(double* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

template <typename Element>
void plane_sums(const Element* x, std::int64_t count, double* sum, double* square_sum) {
  double sums[kLanes] = {};
  double squares[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const double value = x[i + k];
      sums[k] += value;
      squares[k] += value * value;
    }
  }
  for (int k = 0; i < count; ++i, ++k) {
    const double value = x[i];
    sums[k] += value;
    squares[k] += value * value;
  }
  *sum += total(sums);
  *square_sum += total(squares);
}

template <typename Element>
void plane_gradient_sums(const Element* dy, const Element* x, Element mean, std::int64_t count, double* sum,
                         double* product) {
  double sums[kLanes] = {};
  double products[kLanes] = {};
  const double middle = mean;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const double value = dy[i + k];
      sums[k] += value;
      products[k] += value * (static_cast<double>(x[i + k]) - middle);
    }
  }
  for (int k = 0; i < count; ++i, ++k) {
    const double value = dy[i];
    sums[k] += value;
    products[k] += value * (static_cast<double>(x[i]) - middle);
  }
  *sum += total(sums);
  *product += total(products);
}

template <typename Element>
void plane_apply(const Element* __restrict x, Element scale, Element shift, Element* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * scale + shift;
}

template <typename Element>
void plane_gradient_apply(const Element* __restrict dy, const Element* __restrict x, Element mean, Element mean_dy,
                          Element slope, Element scale, Element* __restrict dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dx[i] = (dy[i] - mean_dy - (x[i] - mean) * slope) * scale;
}

template <typename Element>
constexpr BatchNormPartLoopsOf<Element> kLoopsOf{
    &row_sums<Element>,   &row_gradient_sums<Element>,   &row_apply<Element>,   &row_gradient_apply<Element>,
    &plane_sums<Element>, &plane_gradient_sums<Element>, &plane_apply<Element>, &plane_gradient_apply<Element>};

}  // namespace

extern const BatchNormPartLoops kBatchNormPartLoops{kLoopsOf<float>, kLoopsOf<double>};

}  // namespace tesser::kernels::TESSER_LOOPS
