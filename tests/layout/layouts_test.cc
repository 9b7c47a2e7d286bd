#include "layout/layouts.h"

#include <gtest/gtest.h>

#include "program_builder.h"

namespace tesser::layout {
namespace {

using graph::Role;
using graph::ValueId;

// A convolution with a trained weight; its result and its weight.
struct Convolved {
  ProgramBuilder build;
  ValueId image = build.input(Role::kBatch, {2, 3, 6, 6});
  ValueId weight = build.input(Role::kParameter, {8, 3, 3, 3});
  ValueId result = build.one("aten::convolution",
                             {value(image), value(weight), graph::None(), integers({1, 1}), integers({1, 1}),
                              integers({1, 1}), false, integers({0, 0}), integer(1)},
                             {2, 8, 6, 6});
};

TEST(LayoutsTest, WeightsOfConvolutionsLieChannelsLast) {
  Convolved net;
  const ValueId momentum = net.build.input(Role::kOptimizerState, {8, 3, 3, 3});
  net.build.program().values[static_cast<std::size_t>(momentum)].of = net.weight;
  const Layouts layouts = Layouts::of(net.build.program());
  EXPECT_EQ(layouts[net.image], row_major({2, 3, 6, 6}));
  EXPECT_EQ(layouts[net.weight], channels_last({8, 3, 3, 3}));
  EXPECT_EQ(layouts[momentum], channels_last({8, 3, 3, 3}));
  EXPECT_EQ(layouts[net.result], channels_last({2, 8, 6, 6}));
  const Layouts plain = Layouts::of(net.build.program(), Weights::kRowMajor);
  EXPECT_EQ(plain[net.weight], row_major({8, 3, 3, 3}));
  EXPECT_EQ(plain[net.result], row_major({2, 8, 6, 6}));
}

TEST(LayoutsTest, ElementwiseResultsFollowTheirOperands) {
  Convolved net;
  const ValueId sum = net.build.one("aten::add.Tensor", {value(net.result), value(net.result)}, {2, 8, 6, 6});
  const ValueId rows = net.build.one("aten::transpose.int", {value(sum), integer(2), integer(3)}, {2, 8, 6, 6});
  const ValueId next = net.build.one("aten::relu", {value(rows)}, {2, 8, 6, 6});
  const Layouts layouts = Layouts::of(net.build.program());
  EXPECT_EQ(layouts[sum], channels_last({2, 8, 6, 6}));
  EXPECT_EQ(layouts[rows], (Strides{288, 1, 8, 48}));
  EXPECT_EQ(layouts[next], (Strides{288, 1, 8, 48}));
}

TEST(LayoutsTest, GroupNormAsksForRows) {
  Convolved net;
  const auto normed = net.build.node(
      "aten::native_group_norm",
      {value(net.result), graph::None(), graph::None(), integer(2), integer(8), integer(36), integer(2), 1e-5},
      {{2, 8, 6, 6}, {2, 2}, {2, 2}});
  const Layouts layouts = Layouts::of(net.build.program());
  EXPECT_EQ(layouts.needed(net.build.program().nodes[1], 0, net.result), row_major({2, 8, 6, 6}));
  EXPECT_EQ(layouts.needed(net.build.program().nodes[1], 0, net.image), std::nullopt);
  EXPECT_EQ(layouts[normed[0]], row_major({2, 8, 6, 6}));
}

TEST(LayoutsTest, NodesThatStateAnOrderAreBelieved) {
  ProgramBuilder build;
  const ValueId x = build.input(Role::kBatch, {4, 6});
  const ValueId turned = build.one("tesser::arrange", {value(x), integers({1, 0})}, {4, 6});
  const ValueId again = build.one("tesser::arrange", {value(turned), integers({1, 0})}, {4, 6});
  const ValueId nonsense = build.one("tesser::arrange", {value(x), integers({1, 1})}, {4, 6});
  const Layouts layouts = Layouts::of(build.program());
  EXPECT_EQ(layouts[turned], (Strides{1, 4}));
  EXPECT_EQ(layouts[nonsense], (Strides{6, 1}));
  EXPECT_FALSE(layouts.is_view(build.program().nodes[0]));
  EXPECT_TRUE(layouts.is_view(build.program().nodes[1]));  // lies so already
  EXPECT_EQ(layouts[again], (Strides{1, 4}));
}

TEST(LayoutsTest, AGradientIsAskedToLieAsItsParameter) {
  ProgramBuilder build;
  const ValueId w = build.input(Role::kParameter, {4, 6});
  const ValueId x = build.input(Role::kBatch, {6, 4});
  const ValueId rate = build.input(Role::kLearningRate, {});
  const ValueId gradient = build.one("aten::t", {value(x)}, {4, 6});
  build.node("tesser::sgd", {value(w), value(gradient), graph::None(), value(rate)}, {{4, 6}});
  const Layouts layouts = Layouts::of(build.program());
  EXPECT_EQ(layouts.needed(build.program().nodes[1], 1, gradient), (Strides{6, 1}));
  EXPECT_EQ(layouts.needed(build.program().nodes[1], 0, w), std::nullopt);
  EXPECT_EQ(layouts.needed(build.program().nodes[1], 3, rate), std::nullopt);
}

}  // namespace
}  // namespace tesser::layout
