#include "runtime/passes/fused_expression.h"

#include <string>

#include <gtest/gtest.h>

namespace tesser::runtime {
namespace {

TEST(FusedExpression, PrintsAndParsesExactly) {
  const std::string text = "t0 = add(i0, i1, 0.1); t1 = gelu(t0); o0 = clamp(t1, -inf, 6); o1 = where(i2, o0, t0)";
  const auto expression = parse_expression(text);
  ASSERT_TRUE(expression.has_value()) << expression.error().message;
  EXPECT_EQ(expression->inputs, 3);
  EXPECT_EQ(expression->temporaries, 2);
  EXPECT_EQ(expression->outputs, 2);
  EXPECT_EQ(print(*expression), text);
  EXPECT_EQ(*parse_expression(print(*expression)), *expression);
}

TEST(FusedExpression, EveryOpcodeHasANameOfItsOwn) {
  for (int a = 0; a < static_cast<int>(Opcode::kCount); ++a) {
    ASSERT_FALSE(opcode_name(static_cast<Opcode>(a)).empty()) << a;
    for (int b = 0; b < a; ++b) EXPECT_NE(opcode_name(static_cast<Opcode>(a)), opcode_name(static_cast<Opcode>(b)));
  }
}

TEST(FusedExpression, RefusesWhatIsNone) {
  for (const char* text : {"", "o0", "o0 = ", "o0 = add(i0, i1)", "o0 = add(i0, i1, 1", "o0 = nothing(i0)",
                           "i0 = relu(i1)", "o0 = relu(i0); ", "o0 = relu(x0)", "o0 = relu(i0) ", "o0 = relu(i-1)"}) {
    const auto expression = parse_expression(text);
    ASSERT_FALSE(expression.has_value()) << text;
    EXPECT_NE(expression.error().message.find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace tesser::runtime
