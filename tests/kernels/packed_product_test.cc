#include "kernels/packed_product.h"

#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/packed_product_loops.h"

namespace tesser::kernels {
namespace {

std::vector<float> normal_numbers(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

enum class Addend { kNone, kRow, kMatrix };

// What the contract says of one element: a chain of fused multiply-adds in the order of the depth.
class PackedProductTest : public testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  void check(bool transposed, Addend addend) const {
    const auto [rows, depth, columns] = GetParam();
    const std::int64_t left_pitch = depth + 3;
    const std::vector<float> left = normal_numbers(rows * left_pitch, 1);
    const std::vector<float> right = normal_numbers(depth * columns, 2);
    const std::int64_t addend_pitch = addend == Addend::kMatrix ? columns + 5 : 0;
    const std::vector<float> sums = normal_numbers(rows * addend_pitch + columns, 3);
    std::vector<float> packed(static_cast<std::size_t>(panel_count(columns) * depth * kPanelColumns), NAN);
    std::vector<float> result(static_cast<std::size_t>(rows * columns + 1), NAN);
    const std::int64_t panels = panel_count(columns);
    pack_panels(right.data(), transposed, depth, columns, packed.data(), panels / 2, panels);
    pack_panels(right.data(), transposed, depth, columns, packed.data(), 0, panels / 2);
    PackedProduct product;
    product.left = left.data();
    product.left_pitch = left_pitch;
    product.packed = packed.data();
    product.addend = addend == Addend::kNone ? nullptr : sums.data();
    product.addend_pitch = addend_pitch;
    product.result = result.data();
    product.rows = rows;
    product.depth = depth;
    product.columns = columns;
    packed_product(product, panels / 3, panels);
    packed_product(product, 0, panels / 3);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        float expected = addend == Addend::kNone ? 0.0F : sums[static_cast<std::size_t>(i * addend_pitch + j)];
        for (std::int64_t k = 0; k < depth; ++k) {
          const std::int64_t place = transposed ? j * depth + k : k * columns + j;
          expected = std::fmaf(left[static_cast<std::size_t>(i * left_pitch + k)],
                               right[static_cast<std::size_t>(place)], expected);
        }
        ASSERT_EQ(result[static_cast<std::size_t>(i * columns + j)], expected) << i << ", " << j;
      }
    }
    EXPECT_TRUE(std::isnan(result.back()));  // nothing is written beyond
  }
};

TEST_P(PackedProductTest, IsTheSumInTheOrderOfTheDepth) {
  for (const bool transposed : {false, true}) {
    for (const Addend addend : {Addend::kNone, Addend::kRow, Addend::kMatrix}) check(transposed, addend);
  }
}

// Rows that fill tiles and rests of every size, depths beyond what is taken at once, columns with a rest of a panel.
INSTANTIATE_TEST_SUITE_P(Shapes, PackedProductTest,
                         testing::Values(std::tuple{1, 1, 1}, std::tuple{2, 5, 32}, std::tuple{3, 16, 31},
                                         std::tuple{4, 18, 33}, std::tuple{5, 64, 96}, std::tuple{6, 7, 100},
                                         std::tuple{7, 513, 40}, std::tuple{8, 512, 64}, std::tuple{13, 1300, 70},
                                         std::tuple{16, 1024, 32}));

// Every instruction set gives the same bits.
TEST(PackedProductLoops, AgreeOnAllInstructionSets) {
#if defined(__x86_64__)
  constexpr std::int64_t kRows = 2;  // the fewest that a tile of any set takes
  constexpr std::int64_t kDepth = 37;
  const std::vector<float> left = normal_numbers(kRows * kDepth, 4);
  const std::vector<float> panel = normal_numbers(kDepth * kPanelColumns, 5);
  const auto product = [&](const PackedProductLoops& loops) {
    std::vector<float> sums = normal_numbers(kRows * kPanelColumns, 6);
    loops.multiply(left.data(), kDepth, panel.data(), sums.data(), kPanelColumns, kRows, kDepth);
    return sums;
  };
  const std::vector<float> expected = product(portable::kPackedProductLoops);
  if (best_instruction_set() != InstructionSet::kPortable) {
    EXPECT_EQ(product(avx2::kPackedProductLoops), expected);
  }
  if (best_instruction_set() == InstructionSet::kAvx512) {
    EXPECT_EQ(product(avx512::kPackedProductLoops), expected);
  }
#endif
}

}  // namespace
}  // namespace tesser::kernels
