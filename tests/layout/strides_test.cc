#include "layout/strides.h"

#include <gtest/gtest.h>

namespace tesser::layout {
namespace {

TEST(StridesTest, DenseTensorsLieInTheirOrder) {
  EXPECT_EQ(row_major({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(channels_last({2, 3, 4, 5}), (Strides{60, 1, 15, 3}));
  EXPECT_EQ(channels_last({2, 3, 4, 5, 6}), (Strides{360, 1, 90, 18, 3}));
  EXPECT_EQ(channels_last({2, 3, 4}), (Strides{12, 1, 3}));
  EXPECT_EQ(channels_last({2, 3}), row_major({2, 3}));
  EXPECT_EQ(dense_strides({6, 7}, {1, 0}), (Strides{1, 6}));
  EXPECT_EQ(dense_strides({6, 7}, {}), (Strides{7, 1}));
  EXPECT_EQ(row_major({0, 3}), (Strides{3, 1}));
}

TEST(StridesTest, AnOrderNamesEachDimensionOnce) {
  EXPECT_TRUE(is_order({}, 3));
  EXPECT_TRUE(is_order({2, 0, 1}, 3));
  EXPECT_FALSE(is_order({2, 0}, 3));
  EXPECT_FALSE(is_order({0, 0, 1}, 3));
  EXPECT_FALSE(is_order({0, 1, 3}, 3));
  EXPECT_FALSE(is_order({-1, 0, 1}, 3));
}

TEST(StridesTest, TheOrderIsReadOffTheStrides) {
  EXPECT_EQ(order_of({2, 3, 4}, {12, 4, 1}), (Order{0, 1, 2}));
  EXPECT_EQ(order_of({2, 3, 4, 5}, {60, 1, 15, 3}), (Order{0, 2, 3, 1}));
  EXPECT_EQ(order_of({2, 3}, {1, 2}), (Order{1, 0}));
  EXPECT_EQ(order_of({2, 3}, {1, 100}), (Order{1, 0}));  // holes change nothing
  EXPECT_EQ(order_of({2, 3}, {0, 0}), (Order{0, 1}));    // one element, repeated
}

TEST(StridesTest, DimensionsOfOneAndEmptyTensorsDoNotCount) {
  EXPECT_TRUE(same({2, 1, 3}, {3, 3, 1}, {3, 99, 1}));
  EXPECT_FALSE(same({2, 2, 3}, {6, 3, 1}, {3, 6, 1}));
  EXPECT_TRUE(same({2, 0, 3}, {1, 2, 3}, {9, 9, 9}));
  EXPECT_TRUE(is_row_major({2, 1, 3}, {3, 99, 1}));
  EXPECT_TRUE(is_dense({2, 3, 4, 5}, channels_last({2, 3, 4, 5})));
  EXPECT_FALSE(is_dense({2, 3}, {6, 1}));  // rows out of a wider matrix
  EXPECT_FALSE(is_dense({2, 3}, {0, 1}));  // one row, repeated
}

// Expected values are those of Tensor.suggest_memory_format.
TEST(StridesTest, ImagesAreToldByTheirStrides) {
  EXPECT_TRUE(suggests_channels_last({2, 3, 4, 5}, {60, 1, 15, 3}));
  EXPECT_FALSE(suggests_channels_last({2, 3, 4, 5}, {60, 20, 5, 1}));
  EXPECT_TRUE(suggests_channels_last({2, 3, 4, 5, 6}, {360, 1, 90, 18, 3}));
  EXPECT_TRUE(suggests_channels_last({8, 1, 3, 3}, {9, 1, 3, 1}));  // both at once: the strides decide
  EXPECT_FALSE(suggests_channels_last({8, 1, 3, 3}, {9, 9, 3, 1}));
  EXPECT_FALSE(suggests_channels_last({8, 1, 1, 1}, {1, 1, 1, 1}));
  EXPECT_FALSE(suggests_channels_last({2, 3, 4}, {12, 1, 3}));
}

TEST(StridesTest, EmptyLikeKeepsTheOrder) {
  EXPECT_EQ(preserved({2, 3}, {1, 2}), (Strides{1, 2}));
  EXPECT_EQ(preserved({2, 3}, {1, 20}), (Strides{1, 2}));
  EXPECT_EQ(preserved({2, 3}, {0, 1}), (Strides{3, 1}));
  EXPECT_EQ(preserved({2, 3, 4}, {24, 8, 2}), (Strides{12, 4, 1}));
}

Strides of(const Shape& shape, const std::vector<std::pair<Shape, Strides>>& tensors) {
  std::vector<Operand> operands;
  for (const auto& [operand_shape, strides] : tensors) operands.push_back({&operand_shape, &strides});
  return iterated(shape, operands);
}

// Expected values are the strides of PyTorch's sums.
TEST(StridesTest, ElementwiseResultsFollowTheirOperands) {
  const Shape image{2, 3, 4, 5};
  const Strides rows = row_major(image);
  const Strides channels = channels_last(image);
  EXPECT_EQ(of(image, {{image, rows}, {image, rows}}), rows);
  EXPECT_EQ(of(image, {{image, channels}, {image, channels}}), channels);
  EXPECT_EQ(of(image, {{image, channels}, {image, rows}}), channels);
  EXPECT_EQ(of(image, {{image, rows}, {image, channels}}), rows);
  EXPECT_EQ(of(image, {{{3, 1, 1}, {1, 1, 1}}, {image, channels}}), channels);
  EXPECT_EQ(of({2, 3}, {{{2, 3}, {1, 2}}, {{3}, {1}}}), (Strides{1, 2}));
  EXPECT_EQ(of({2, 3}, {{{3}, {1}}, {{2, 3}, {1, 2}}}), (Strides{1, 2}));
  EXPECT_EQ(of({2, 3}, {{{2, 3}, {0, 1}}}), (Strides{3, 1}));
  EXPECT_EQ(of({2, 3, 4}, {{{2, 3, 4}, {48, 1, 6}}}), (Strides{12, 1, 3}));
  EXPECT_EQ(of({}, {{{}, {}}}), Strides{});
}

}  // namespace
}  // namespace tesser::layout
