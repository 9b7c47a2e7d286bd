#include "layout/statement.h"

#include <gtest/gtest.h>

#include "layout/shipped.h"

namespace tesser::layout {
namespace {

using ArgumentKind = ArgumentRule::Kind;
using ResultKind = ResultRule::Kind;

TEST(StatementTest, ALineSaysWhatAKernelTakesAndGives) {
  const auto statements = parse_statements(
      "# a comment\n"
      "aten::add.Tensor  any -> iterator\n"
      "aten::attention  query@0:inner mask@5:any -> order(0 2 1 3), rows  # two results\n"
      "aten::copy  self@0:like(src@1) -> like(self@0)\n"
      "aten::convolution  input@0:image weight@1:image -> image(input@0 weight@1)\n");
  ASSERT_TRUE(statements.has_value()) << statements.error().message;
  const Statement& add = statements->at("aten::add.Tensor");
  EXPECT_EQ(add.argument(0).kind, ArgumentKind::kAny);
  EXPECT_EQ(add.argument(1).kind, ArgumentKind::kAny);
  EXPECT_EQ(add.result(0).kind, ResultKind::kIterator);
  const Statement& attention = statements->at("aten::attention");
  EXPECT_EQ(attention.argument(0).kind, ArgumentKind::kInner);
  EXPECT_EQ(attention.argument(1).kind, ArgumentKind::kRows);
  EXPECT_EQ(attention.argument(5).kind, ArgumentKind::kAny);
  EXPECT_EQ(attention.result(0).order, (Order{0, 2, 1, 3}));
  EXPECT_EQ(attention.result(1).kind, ResultKind::kRows);
  EXPECT_EQ(attention.result(2).kind, ResultKind::kRows);  // the last one goes on
  EXPECT_EQ(statements->at("aten::copy").argument(0).argument, 1u);
  EXPECT_EQ(statements->at("aten::copy").result(0).arguments, (std::vector<std::size_t>{0}));
  EXPECT_EQ(statements->at("aten::convolution").result(0).arguments, (std::vector<std::size_t>{0, 1}));
}

TEST(StatementTest, AnOperatorWithoutALineTakesRows) {
  EXPECT_EQ(statement_of("aten::no_such_operator").argument(0).kind, ArgumentKind::kRows);
  EXPECT_EQ(statement_of("aten::no_such_operator").result(0).kind, ResultKind::kRows);
}

TEST(StatementTest, AnElementwiseOperatorWithoutALineIsWalkedByTheIterator) {
  EXPECT_EQ(statement_of("aten::expm1").argument(0).kind, ArgumentKind::kAny);
  EXPECT_EQ(statement_of("aten::expm1").result(0).kind, ResultKind::kIterator);
  EXPECT_EQ(statement_of("tesser::dropout").argument(0).kind, ArgumentKind::kRows);
  EXPECT_EQ(statement_of("tesser::dropout").result(0).kind, ResultKind::kRows);
}

TEST(StatementTest, KernelsOfOursGoBeforeThoseMeasured) {
  EXPECT_EQ(statement_of("aten::native_batch_norm_backward").argument(1).kind, ArgumentKind::kImage);
  EXPECT_EQ(statement_of("tesser::sgd").argument(1).kind, ArgumentKind::kLike);
}

TEST(StatementTest, TheShippedStatementsAreRead) {
  for (const std::string_view text : {measured_statements(), own_statements()}) {
    const auto statements = parse_statements(text);
    ASSERT_TRUE(statements.has_value()) << statements.error().message;
    EXPECT_FALSE(statements->empty());
  }
}

TEST(StatementTest, WrongLinesAreRefused) {
  for (const char* const line :
       {"aten::a any", "aten::a -> ", "aten::a some -> rows", "aten::a x:any -> rows", "aten::a x@y:any -> rows",
        "aten::a any -> like", "aten::a any -> like(x@0 y@1)", "aten::a any -> order(0 0)", "aten::a any -> order(1)",
        "aten::a any -> order()", "aten::a x@0:any x@0:rows -> rows", "aten::a any -> rows\naten::a any -> rows"}) {
    const auto statements = parse_statements(line);
    const bool empty_results = std::string_view(line) == "aten::a -> ";
    EXPECT_EQ(statements.has_value(), empty_results) << line;
    if (!statements) {
      EXPECT_NE(statements.error().message.find("line "), std::string::npos) << statements.error().message;
    }
  }
}

}  // namespace
}  // namespace tesser::layout
