#include "kernels/batch_norm.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/batch_norm_loops.h"
#include "kernels/transpose.h"

namespace tesser::kernels {
namespace {

std::vector<float> random_floats(std::int64_t count, float mean, float deviation, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& each : values) each = normal(generator);
  return values;
}

std::size_t at(std::int64_t row, std::int64_t channels, std::int64_t channel) {
  return static_cast<std::size_t>(row * channels + channel);
}

// Channel counts that use every width of the loops, rows that are no multiple of 16, a mean far from zero.
class BatchNorm : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Channels, BatchNorm, ::testing::Values(1, 3, 4, 7, 16, 21, 64, 85));

TEST_P(BatchNorm, SumsAreThoseOfDouble) {
  const std::int64_t channels = GetParam();
  const std::int64_t rows = 1003;
  const auto x = random_floats(rows * channels, 3, 2, 1);
  const auto dy = random_floats(rows * channels, 0.1F, 1, 2);
  const std::vector<float> mean(static_cast<std::size_t>(channels), 2.5F);
  const auto size = static_cast<std::size_t>(channels);
  std::vector<double> sums(size), squares(size), gradient_sums(size), products(size);
  batch_norm_sums(x.data(), 5, rows, channels, sums.data());
  batch_norm_square_sums(x.data(), mean.data(), 5, rows, channels, squares.data());
  batch_norm_gradient_sums(dy.data(), x.data(), mean.data(), 5, rows, channels, gradient_sums.data(), products.data());
  for (std::int64_t c = 0; c < channels; ++c) {
    double sum = 0, square = 0, gradient = 0, product = 0, magnitude = 0;
    for (std::int64_t r = 5; r < rows; ++r) {
      const double distance = double{x[at(r, channels, c)]} - 2.5;
      sum += x[at(r, channels, c)];
      square += distance * distance;
      gradient += dy[at(r, channels, c)];
      product += dy[at(r, channels, c)] * distance;
      magnitude += std::abs(dy[at(r, channels, c)]) * (1 + std::abs(distance));
    }
    const auto index = static_cast<std::size_t>(c);
    EXPECT_NEAR(sums[index], sum, 2e-7 * std::abs(sum));
    EXPECT_NEAR(squares[index], square, 2e-7 * square);
    EXPECT_NEAR(gradient_sums[index], gradient, 2e-7 * magnitude);
    EXPECT_NEAR(products[index], product, 2e-7 * magnitude);
  }
}

TEST_P(BatchNorm, AppliesItsFormulas) {
  const std::int64_t channels = GetParam();
  const std::int64_t rows = 37;
  const auto x = random_floats(rows * channels, 1, 1, 3);
  const auto dy = random_floats(rows * channels, 0, 1, 4);
  const auto scale = random_floats(channels, 1, 0.3F, 5);
  const auto shift = random_floats(channels, 0, 1, 6);
  const auto mean = random_floats(channels, 1, 1, 7);
  const auto slope = random_floats(channels, 0, 1, 8);
  std::vector<float> y(x.size(), -1), dx(x.size(), -1);
  batch_norm_apply(x.data(), scale.data(), shift.data(), y.data(), 2, rows, channels);
  batch_norm_gradient_apply(dy.data(), x.data(), mean.data(), shift.data(), slope.data(), scale.data(), dx.data(), 2,
                            rows, channels);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto i = at(r, channels, c);
      const auto k = static_cast<std::size_t>(c);
      const float product = x[i] * scale[k];
      EXPECT_EQ(y[i], r < 2 ? -1 : product + shift[k]);
      const float bend = (x[i] - mean[k]) * slope[k];
      EXPECT_EQ(dx[i], r < 2 ? -1 : (dy[i] - shift[k] - bend) * scale[k]);
    }
  }
}

#if defined(__x86_64__)
void expect_same(const BatchNormLoops& a, const BatchNormLoops& b) {
  constexpr std::int64_t kRows = 83;
  constexpr std::int64_t kChannels = 85;
  const auto x = random_floats(kRows * kChannels, 1, 2, 10);
  const auto dy = random_floats(kRows * kChannels, 0, 1, 11);
  const auto mean = random_floats(kChannels, 1, 1, 12);
  const auto results = [&](const BatchNormLoops& loops) {
    std::vector<double> all(5 * kChannels);
    loops.sums(x.data(), kRows, kChannels, all.data());
    loops.square_sums(x.data(), mean.data(), kRows, kChannels, all.data() + kChannels);
    loops.gradient_sums(dy.data(), x.data(), mean.data(), kRows, kChannels, all.data() + 2 * kChannels,
                        all.data() + 3 * kChannels);
    std::vector<float> y(x.size());
    loops.apply(x.data(), mean.data(), dy.data(), y.data(), kRows, kChannels);
    all.insert(all.end(), y.begin(), y.end());
    loops.gradient_apply(dy.data(), x.data(), mean.data(), mean.data(), mean.data(), mean.data(), y.data(), kRows,
                         kChannels);
    all.insert(all.end(), y.begin(), y.end());
    return all;
  };
  EXPECT_EQ(results(a), results(b));
}

TEST(BatchNormLoops, AreTheSameOnEveryInstructionSet) {
  if (best_instruction_set() == InstructionSet::kPortable)
    GTEST_SKIP() << "this processor has no other instruction set";
  expect_same(avx2::kBatchNormLoops, portable::kBatchNormLoops);
  if (best_instruction_set() == InstructionSet::kAvx512)
    expect_same(avx512::kBatchNormLoops, portable::kBatchNormLoops);
}
#endif

TEST(RowParts, CoverTheRowsOnce) {
  for (const std::int64_t rows : {1, 127, 128, 129, 8192, 8193, 100000}) {
    const RowParts parts(rows);
    std::int64_t next = 0;
    for (std::int64_t part = 0; part < parts.count; ++part) {
      EXPECT_EQ(parts.begin(part), next);
      EXPECT_GT(parts.end(part), next);
      next = parts.end(part);
    }
    EXPECT_EQ(next, rows);
    EXPECT_LE(parts.count, 64);
  }
}

TEST(Transpose, AnyRangeOfAnyShape) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 50}, {50, 3}, {16, 32}, {47, 33}}) {
    const auto source = random_floats(rows * columns, 0, 1, 9);
    std::vector<float> target(source.size());
    transpose(source.data(), target.data(), rows, columns, 0, columns / 2);
    transpose(source.data(), target.data(), rows, columns, columns / 2, columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) EXPECT_EQ(target[at(c, rows, r)], source[at(r, columns, c)]);
    }
  }
}

}  // namespace
}  // namespace tesser::kernels
