#include "layout/views.h"

#include <limits>

#include <gtest/gtest.h>

#include "program_builder.h"

namespace tesser::layout {
namespace {

using graph::Argument;
using graph::Role;
using graph::ValueId;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();  // no step PyTorch takes; must not overflow

struct View {
  const char* op;
  Shape shape;
  Strides strides;
  std::vector<Argument> arguments;  // after the first
  Shape result;
  std::optional<Strides> expected;  // nothing: the runtime copies
};

// Expected strides are PyTorch's.
TEST(ViewsTest, StridesAreThoseOfPyTorch) {
  const View kViews[] = {
      {"aten::t", {2, 3}, {3, 1}, {}, {3, 2}, Strides{1, 3}},
      {"aten::t", {3}, {1}, {}, {3}, Strides{1}},
      {"aten::transpose.int", {2, 3, 4}, {12, 4, 1}, {integer(0), integer(-1)}, {4, 3, 2}, Strides{1, 4, 12}},
      {"aten::permute", {2, 3, 4}, {12, 4, 1}, {integers({2, 0, 1})}, {4, 2, 3}, Strides{1, 12, 4}},
      {"aten::permute", {2, 3, 4}, {12, 4, 1}, {integers({-1, 0, 1})}, {4, 2, 3}, Strides{1, 12, 4}},
      {"aten::expand", {3, 1}, {1, 1}, {integers({2, 3, 5})}, {2, 3, 5}, Strides{0, 1, 0}},
      {"aten::expand", {}, {}, {integers({2})}, {2}, Strides{0}},
      {"aten::slice.Tensor", {4, 6}, {6, 1}, {integer(1), integer(0), integer(6), integer(2)}, {4, 3}, Strides{6, 2}},
      {"aten::slice.Tensor", {4, 6}, {6, 1}, {integer(0), integer(1)}, {3, 6}, Strides{6, 1}},
      {"aten::slice.Tensor",
       {4, 6},
       {6, 1},
       {integer(0), integer(0), integer(4), integer(kHuge)},
       {1, 6},
       Strides{kHuge, 1}},
      {"aten::view", {2, 3}, {kHuge, 1}, {integers({6})}, {6}, std::nullopt},
      {"aten::unsqueeze", {4}, {kHuge}, {integer(0)}, {1, 4}, Strides{kHuge, kHuge}},
      {"aten::select.int", {4, 6}, {6, 1}, {integer(0), integer(1)}, {6}, Strides{1}},
      {"aten::select.int", {4, 6}, {6, 1}, {integer(-1), integer(1)}, {4}, Strides{6}},
      {"aten::unsqueeze", {4, 6}, {6, 1}, {integer(0)}, {1, 4, 6}, Strides{24, 6, 1}},
      {"aten::unsqueeze", {4, 6}, {6, 1}, {integer(-1)}, {4, 6, 1}, Strides{6, 1, 1}},
      {"aten::squeeze", {1, 4, 1}, {4, 1, 1}, {}, {4}, Strides{1}},
      {"aten::squeeze.dim", {1, 4, 1}, {4, 1, 1}, {integer(0)}, {4, 1}, Strides{1, 1}},
      {"aten::squeeze.dim", {1, 4, 1}, {4, 1, 1}, {integer(1)}, {1, 4, 1}, Strides{4, 1, 1}},
      {"aten::squeeze.dims", {1, 4, 1}, {4, 1, 1}, {integers({0, 2})}, {4}, Strides{1}},
      {"aten::detach", {2, 3}, {1, 2}, {}, {2, 3}, Strides{1, 2}},
      {"aten::contiguous", {2, 3}, {3, 1}, {}, {2, 3}, Strides{3, 1}},
      {"aten::contiguous", {2, 3}, {1, 2}, {}, {2, 3}, std::nullopt},
      {"aten::view", {2, 3, 4}, {12, 4, 1}, {integers({6, 4})}, {6, 4}, Strides{4, 1}},
      {"aten::view", {2, 3, 4}, {12, 4, 1}, {integers({2, 12})}, {2, 12}, Strides{12, 1}},
      {"aten::view", {6, 4}, {4, 1}, {integers({2, 3, 2, 2})}, {2, 3, 2, 2}, Strides{12, 4, 2, 1}},
      {"aten::view", {}, {}, {integers({1, 1})}, {1, 1}, Strides{1, 1}},
      {"aten::view", {2, 4, 3}, {12, 1, 4}, {integers({2, 12})}, {2, 12}, std::nullopt},
      {"aten::view", {2, 4, 3}, {12, 1, 4}, {integers({2, 2, 2, 3})}, {2, 2, 2, 3}, Strides{12, 2, 1, 4}},
      {"aten::view", {4, 3}, {1, 4}, {integers({12})}, {12}, std::nullopt},
      {"aten::view", {3, 2}, {1, 0}, {integers({6})}, {6}, std::nullopt},
      {"aten::view", {0, 3}, {3, 1}, {integers({3, 0})}, {3, 0}, Strides{1, 1}},
      {"aten::reshape", {2, 1, 3}, {3, 99, 1}, {integers({6})}, {6}, Strides{1}},
      {"aten::_unsafe_view", {4, 8}, {8, 1}, {integers({2, 2, 8})}, {2, 2, 8}, Strides{16, 8, 1}},
      {"aten::relu", {4}, {1}, {}, {4}, std::nullopt},
      {"aten::clone", {4}, {1}, {}, {4}, std::nullopt},
  };
  for (const View& view : kViews) {
    ProgramBuilder build;
    std::vector<Argument> arguments{value(build.input(Role::kBatch, view.shape))};
    arguments.insert(arguments.end(), view.arguments.begin(), view.arguments.end());
    build.one(view.op, arguments, view.result);
    const auto found = view_strides(build.program(), build.program().nodes[0], view.strides);
    EXPECT_EQ(found.has_value(), view.expected.has_value())
        << view.op << shape_text(view.shape) << shape_text(view.result);
    if (found.has_value() && view.expected.has_value()) {
      EXPECT_EQ((*found)[0], *view.expected) << view.op << shape_text(view.shape) << shape_text(view.result);
    }
  }
}

TEST(ViewsTest, PiecesShareOneMemory) {
  ProgramBuilder build;
  const ValueId x = build.input(Role::kBatch, {3, 4, 8});
  build.node("aten::unbind.int", {value(x), integer(1)}, {{3, 8}, {3, 8}, {3, 8}, {3, 8}});
  build.node("aten::split_with_sizes", {value(x), integers({1, 3}), integer(1)}, {{3, 1, 8}, {3, 3, 8}});
  const auto& nodes = build.program().nodes;
  EXPECT_EQ(view_strides(build.program(), nodes[0], {32, 8, 1}).value(), std::vector<Strides>(4, Strides{32, 1}));
  EXPECT_EQ(view_strides(build.program(), nodes[1], {32, 8, 1}).value(), std::vector<Strides>(2, Strides{32, 8, 1}));
}

}  // namespace
}  // namespace tesser::layout
