#include "kernels/batch_norm_parts.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/batch_norm_parts_loops.h"

namespace tesser::kernels {
namespace {

template <typename Element>
std::vector<Element> random_elements(std::int64_t count, double mean, double deviation, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<Element> values(static_cast<std::size_t>(count));
  for (Element& each : values) each = static_cast<Element>(normal(generator));
  return values;
}

// Rows of channels and planes of positions; counts that use every width of the loops.
class BatchNormParts : public ::testing::TestWithParam<BatchNormShape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormParts,
                         ::testing::Values(BatchNormShape{1, 1}, BatchNormShape{43, 1}, BatchNormShape{8, 1},
                                           BatchNormShape{3, 49}, BatchNormShape{5, 16}, BatchNormShape{2, 7}));

template <typename Element>
void check_sums(const BatchNormShape& shape) {
  constexpr std::int64_t kOuter = 151;
  const auto total = kOuter * shape.channels * shape.inner;
  const auto channels = static_cast<std::size_t>(shape.channels);
  // Far from zero, where a variance from float32 squares would be lost.
  const auto x = random_elements<Element>(total, 1000, 1, 1);
  const auto dy = random_elements<Element>(total, 0.1, 1, 2);
  const std::vector<Element> mean(channels, Element{999});
  std::vector<double> sums(channels, 1), squares(channels), gradients(channels), products(channels);
  for (const auto& [begin, end] : {std::pair{std::int64_t{3}, std::int64_t{90}}, std::pair{std::int64_t{90}, kOuter}}) {
    batch_norm_part_sums(x.data(), shape, begin, end, sums.data(), squares.data());
    batch_norm_part_gradient_sums(dy.data(), x.data(), mean.data(), shape, begin, end, gradients.data(),
                                  products.data());
  }
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    double sum = 1, square = 0, gradient = 0, product = 0, magnitude = 0;
    for (std::int64_t row = 3; row < kOuter; ++row) {
      for (std::int64_t i = 0; i < shape.inner; ++i) {
        const auto at = static_cast<std::size_t>((row * shape.channels + c) * shape.inner + i);
        const double value = x[at];
        sum += value;
        square += value * value;
        gradient += dy[at];
        product += dy[at] * (value - 999);
        magnitude += std::abs(dy[at] * (value - 999)) + std::abs(dy[at]);
      }
    }
    const auto index = static_cast<std::size_t>(c);
    EXPECT_NEAR(sums[index], sum, 1e-13 * sum);
    EXPECT_NEAR(squares[index], square, 1e-13 * square);
    EXPECT_NEAR(gradients[index], gradient, 1e-13 * magnitude);
    EXPECT_NEAR(products[index], product, 1e-13 * magnitude);
  }
}

TEST_P(BatchNormParts, SumsAreThoseOfDouble) {
  check_sums<float>(GetParam());
  check_sums<double>(GetParam());
}

TEST_P(BatchNormParts, AppliesItsFormulas) {
  const BatchNormShape shape = GetParam();
  constexpr std::int64_t kOuter = 9;
  const auto total = kOuter * shape.channels * shape.inner;
  const auto x = random_elements<float>(total, 1, 1, 3);
  const auto dy = random_elements<float>(total, 0, 1, 4);
  const auto scale = random_elements<float>(shape.channels, 1, 0.3, 5);
  const auto shift = random_elements<float>(shape.channels, 0, 1, 6);
  const auto mean = random_elements<float>(shape.channels, 1, 1, 7);
  const auto slope = random_elements<float>(shape.channels, 0, 1, 8);
  std::vector<float> y(x.size(), -1), dx(x.size(), -1);
  batch_norm_part_apply(x.data(), scale.data(), shift.data(), y.data(), shape, 2, kOuter);
  batch_norm_part_gradient_apply(dy.data(), x.data(), mean.data(), shift.data(), slope.data(), scale.data(), dx.data(),
                                 shape, 2, kOuter);
  for (std::int64_t i = 0; i < total; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto c = static_cast<std::size_t>(i / shape.inner % shape.channels);
    const bool before = i < 2 * shape.channels * shape.inner;
    const float product = x[at] * scale[c];
    EXPECT_EQ(y[at], before ? -1 : product + shift[c]);
    const float bend = (x[at] - mean[c]) * slope[c];
    EXPECT_EQ(dx[at], before ? -1 : (dy[at] - shift[c] - bend) * scale[c]);
  }
}

#if defined(__x86_64__)
template <typename Element>
std::vector<double> all_results(const BatchNormPartLoopsOf<Element>& loops) {
  constexpr std::int64_t kRows = 83;
  constexpr std::int64_t kChannels = 45;
  const auto x = random_elements<Element>(kRows * kChannels, 1, 2, 10);
  const auto dy = random_elements<Element>(kRows * kChannels, 0, 1, 11);
  const auto mean = random_elements<Element>(kChannels, 1, 1, 12);
  std::vector<double> all(4 * kChannels + 4);
  loops.row_sums(x.data(), kRows, kChannels, all.data(), all.data() + kChannels);
  loops.row_gradient_sums(dy.data(), x.data(), mean.data(), kRows, kChannels, all.data() + 2 * kChannels,
                          all.data() + 3 * kChannels);
  double* last = all.data() + 4 * kChannels;
  loops.plane_sums(x.data(), 1003, last, last + 1);
  loops.plane_gradient_sums(dy.data(), x.data(), mean[0], 1003, last + 2, last + 3);
  std::vector<Element> y(x.size());
  const auto keep = [&] { all.insert(all.end(), y.begin(), y.end()); };
  loops.row_apply(x.data(), mean.data(), dy.data(), y.data(), kRows, kChannels);
  keep();
  loops.row_gradient_apply(dy.data(), x.data(), mean.data(), mean.data(), mean.data(), mean.data(), y.data(), kRows,
                           kChannels);
  keep();
  loops.plane_apply(x.data(), mean[0], mean[1], y.data(), 1003);
  keep();
  loops.plane_gradient_apply(dy.data(), x.data(), mean[0], mean[1], mean[2], mean[3], y.data(), 1003);
  keep();
  return all;
}

TEST(BatchNormPartLoops, AreTheSameOnEveryInstructionSet) {
  if (best_instruction_set() == InstructionSet::kPortable)
    GTEST_SKIP() << "this processor has no other instruction set";
  const auto expect_same = [](const BatchNormPartLoops& loops) {
    EXPECT_EQ(all_results(loops.of_float), all_results(portable::kBatchNormPartLoops.of_float));
    EXPECT_EQ(all_results(loops.of_double), all_results(portable::kBatchNormPartLoops.of_double));
  };
  expect_same(avx2::kBatchNormPartLoops);
  if (best_instruction_set() == InstructionSet::kAvx512) expect_same(avx512::kBatchNormPartLoops);
}
#endif

}  // namespace
}  // namespace tesser::kernels
