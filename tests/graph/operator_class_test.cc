#include "graph/operator_class.h"

#include <limits>

#include <gtest/gtest.h>

namespace tesser::graph {
namespace {

// A node over values of these shapes, which are its first arguments; results have the shapes of `results`, empty for
// one that does not exist.
struct OneNode {
  Program program;
  Node node;

  OneNode(const std::string& op, const std::vector<Shape>& arguments, const std::vector<Shape>& results) {
    node.op = op;
    for (const Shape& shape : arguments) {
      node.args.emplace_back(ValueRef{add(shape)});
    }
    for (const Shape& shape : results) {
      node.outputs.push_back(shape.empty() ? kNone : add(shape));
    }
  }
  ValueId add(const Shape& shape) {
    program.values.emplace_back().shape = shape;
    return static_cast<ValueId>(program.values.size() - 1);
  }
  std::int64_t operations() const { return floating_point_operations(program, node); }
};

TEST(OperatorClassTest, KnowsOperatorsWhateverTheirOverload) {
  EXPECT_EQ(base_name("aten::add.Tensor"), "aten::add");
  EXPECT_EQ(operator_class("aten::add.Tensor"), OperatorClass::kElementwise);
  EXPECT_EQ(operator_class("aten::add"), OperatorClass::kElementwise);
  EXPECT_EQ(operator_class("aten::transpose.int"), OperatorClass::kView);
  EXPECT_EQ(operator_class("aten::mm"), OperatorClass::kContraction);
  EXPECT_EQ(operator_class("aten::cat"), OperatorClass::kMovement);
  EXPECT_EQ(operator_class("aten::sum.dim_IntList"), OperatorClass::kOther);
  EXPECT_EQ(operator_class("tesser::adam"), OperatorClass::kOther);
}

TEST(OperatorClassTest, CountsProducts) {
  EXPECT_EQ(OneNode("aten::mm", {{2, 3}, {3, 5}}, {{2, 5}}).operations(), 2 * 2 * 3 * 5);
  EXPECT_EQ(OneNode("aten::addmm", {{5}, {2, 3}, {3, 5}}, {{2, 5}}).operations(), 2 * 2 * 3 * 5);
  EXPECT_EQ(OneNode("aten::bmm", {{7, 2, 3}, {7, 3, 5}}, {{7, 2, 5}}).operations(), 2 * 7 * 2 * 3 * 5);
  EXPECT_EQ(OneNode("aten::baddbmm", {{7, 2, 5}, {7, 2, 3}, {7, 3, 5}}, {{7, 2, 5}}).operations(), 2 * 7 * 2 * 3 * 5);
}

TEST(OperatorClassTest, CountsConvolutions) {
  const std::vector<std::int64_t> ones{1, 1};
  const std::vector<std::int64_t> zeros{0, 0};
  const auto convolution = [&](Shape input, Shape weight, Shape output, bool transposed, std::int64_t groups) {
    OneNode one("aten::convolution", {std::move(input), std::move(weight)}, {std::move(output)});
    one.node.args.emplace_back(None{});
    for (const auto* const list : {&ones, &zeros, &ones}) {
      one.node.args.emplace_back(*list);
    }
    one.node.args.emplace_back(transposed);
    one.node.args.emplace_back(zeros);
    one.node.args.emplace_back(groups);
    return one.operations();
  };
  // batch 2, channels 4 -> 8, kernel 3x3, output 6x6
  EXPECT_EQ(convolution({2, 4, 8, 8}, {8, 4, 3, 3}, {2, 8, 6, 6}, false, 1), 2 * (2 * 8 * 6 * 6) * (4 * 3 * 3));
  EXPECT_EQ(convolution({2, 4, 8, 8}, {8, 1, 3, 3}, {2, 8, 6, 6}, false, 4), 2 * (2 * 8 * 6 * 6) * (1 * 3 * 3));
  // transposed: weight is [in, out / groups, 3, 3] and every input element meets all of out / groups * 9
  EXPECT_EQ(convolution({2, 4, 6, 6}, {4, 8, 3, 3}, {2, 8, 8, 8}, true, 1), 2 * (2 * 4 * 6 * 6) * (8 * 3 * 3));
  const std::int64_t forward = 2 * (2 * 8 * 6 * 6) * (4 * 3 * 3);
  const auto backward = [&](const std::vector<Shape>& gradients) {
    return OneNode("aten::convolution_backward", {{2, 8, 6, 6}, {2, 4, 8, 8}, {8, 4, 3, 3}}, gradients).operations();
  };
  EXPECT_EQ(backward({{2, 4, 8, 8}, {8, 4, 3, 3}, {8}}), 2 * forward);
  EXPECT_EQ(backward({{}, {8, 4, 3, 3}, {8}}), forward);
}

TEST(OperatorClassTest, CountsAttention) {
  // batch 2, heads 3, 5 queries, 7 keys, width 4
  const Shape query{2, 3, 5, 4};
  const Shape key{2, 3, 7, 4};
  const std::int64_t product = 2 * (2 * 3) * 5 * 7 * 4;
  EXPECT_EQ(
      OneNode("aten::_scaled_dot_product_flash_attention_for_cpu", {query, key, key}, {query, {2, 5, 3}}).operations(),
      2 * product);
  EXPECT_EQ(OneNode("aten::_scaled_dot_product_flash_attention_for_cpu_backward", {query, query, key, key, query},
                    {query, key, key})
                .operations(),
            5 * product);
}

TEST(OperatorClassTest, CountsTheRestByElement) {
  EXPECT_EQ(OneNode("aten::add.Tensor", {{2, 3}, {3}}, {{2, 3}}).operations(), 6);
  EXPECT_EQ(OneNode("aten::sum.dim_IntList", {{2, 3}}, {{1, 3}}).operations(), 6);
  EXPECT_EQ(OneNode("tesser::lstm_cell", {{2, 4, 8}, {2, 8}}, {{2, 8}, {2, 8}, {2, 4, 8}}).operations(), 64);
  EXPECT_EQ(OneNode("aten::view", {{2, 3}}, {{6}}).operations(), 0);
  EXPECT_EQ(OneNode("aten::clone", {{2, 3}}, {{2, 3}}).operations(), 0);
}

TEST(OperatorClassTest, SaturatesAndSurvivesOddNodes) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 31;
  EXPECT_EQ(OneNode("aten::mm", {{kLarge, kLarge}, {kLarge, kLarge}}, {{kLarge, kLarge - 1}}).operations(),
            std::numeric_limits<std::int64_t>::max());
  const Shape huge{1, 1, 1, std::int64_t{1} << 62};
  for (const char* const op : {"aten::_scaled_dot_product_flash_attention_for_cpu",
                               "aten::_scaled_dot_product_flash_attention_for_cpu_backward"}) {
    EXPECT_EQ(OneNode(op, {huge, huge, huge, huge}, {huge}).operations(), std::numeric_limits<std::int64_t>::max());
  }
  for (const char* const op : {"aten::mm", "aten::addmm", "aten::convolution", "aten::convolution_backward",
                               "aten::add", "aten::_scaled_dot_product_flash_attention_for_cpu",
                               "aten::_scaled_dot_product_flash_attention_for_cpu_backward"}) {
    EXPECT_EQ(OneNode(op, {}, {}).operations(), 0) << op;
    EXPECT_EQ(OneNode(op, {}, {{}}).operations(), 0) << op;
    OneNode scalars(op, {{}, {}, {}, {}}, {{}});
    EXPECT_GE(scalars.operations(), 0) << op;
    EXPECT_EQ(OneNode(op, {{0}, {0}, {0}, {0}}, {{0}}).operations(), 0) << op;
  }
}

}  // namespace
}  // namespace tesser::graph
