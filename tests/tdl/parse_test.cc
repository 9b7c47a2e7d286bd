#include "tdl/catalogue.h"
#include "tdl/description.h"

#include <gtest/gtest.h>

namespace tesser::tdl {
namespace {

std::string message_of(std::string_view text) {
  Catalogue catalogue;
  const Result<void> added = catalogue.add(text, "my.tdl");
  EXPECT_FALSE(added.has_value()) << text;
  return added.has_value() ? "" : added.error().message;
}

struct Malformed {
  const char* text;
  const char* message;  // its first line
};

class MalformedText : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedText, IsRefusedWithItsPlace) {
  const std::string message = message_of(GetParam().text);
  EXPECT_EQ(message.substr(0, message.find('\n')), GetParam().message);
}

const Malformed kMalformed[] = {
    {"aten::f(x) -> y:\n    y[i = x[i]\n", "my.tdl:2:9: expected ']' after index, found '='"},
    {"aten::f(x) -> y:\n    y[i] = x[i]]\n", "my.tdl:2:16: expected the end of the line after the equation, found ']'"},
    {"aten::f(x) -> y:\n    y[i] = x[i", "my.tdl:2:15: expected ']' after index, found the end of the text"},
    {"aten::f(x) -> y:\n    y[i] = z[i]\n", "my.tdl:2:12: 'z' is no parameter of aten::f"},
    {"aten::f(x) -> y:\n    z[i] = x[i]\n", "my.tdl:2:5: 'z' is no result of aten::f"},
    {"aten::f(x) -> y:\n    y[i] = x[k]\n",
     "my.tdl:2:14: 'k' stands neither in the result's index nor in a reduction around it"},
    {"aten::f(x) -> y:\n    y[i] = sum[i](x[i])\n",
     "my.tdl:2:16: 'i' stands in the result's index or is bound already"},
    {"aten::f(x) -> y:\n    y[i] = x[i] + f(x)\n", "my.tdl:2:21: 'x' is a tensor: give it indices, as in x[i]"},
    {"aten::f(x) -> y:\n    y[i...] = x[i]\n",
     "my.tdl:2:17: 'i' stands neither in the result's index nor in a reduction around it"},
    {"aten::f(x) -> y:\n", "my.tdl:1:1: aten::f has no equation"},
    {"aten::f(x) -> y\n    y[i] = x[i]\n", "my.tdl:1:16: expected ':' after the results, found the end of the line"},
    {"aten::f(x, x) -> y:\n    y[i] = x[i]\n", "my.tdl:1:12: 'x' is named twice"},
    {"f(x) -> y:\n    y[i] = x[i]\n", "my.tdl:1:2: expected '::' after the namespace of an operator, found '('"},
    {"    y[i] = x[i]\n", "my.tdl:1:5: a line that is indented belongs to a description, and none begins above it"},
    {"elementwise\naten::f(x) -> y:\n    y[i] = x[i]\n",
     "my.tdl:1:12: expected an operator such as aten::relu after 'elementwise', found the end of the line"},
    {"elementwise aten::f\nelementwise aten::f\n", "my.tdl:2:13: aten::f is described twice in this file"},
    {"aten::f(x) -> y:\n    y[i] = x[i] if dim\n", "my.tdl:2:20: 'dim' is neither a parameter nor a constant"},
    {"aten::f(x) -> y:\n    y[i] = x[sighs(i)]\n",
     "my.tdl:2:14: there is no function 'sighs' of indices and attributes"},
    {"aten::f(x) -> y:\n    y[i...] = x[swap(i..., 1)]\n",
     "my.tdl:2:17: swap takes a pack and two axes, not 2 arguments"},
    {"aten::f(x) -> y:\n    y[i] = x[begin(x)]\n", "my.tdl:2:14: begin has a meaning in a local call only"},
    {"aten::f(x) -> y:\n    y[i] = x[i]\n    where a = b, b = 1\n", "my.tdl:3:15: 'b' is defined later, or by itself"},
    {"aten::f(x) -> y:\n    y[i] = x[i]\n    where k < 3\n", "my.tdl:3:11: no equation has a variable 'k'"},
    {"aten::f(x) -> y:\n    y[i] = x[i]\n    local aten::f(padded(y))\n",
     "my.tdl:3:26: expected the name of an argument"},
    {"aten::f(x) -> y:\n    y[i] = x[99999999999999999999]\n", "my.tdl:2:14: this number is too large"},
    {"aten::f(x) -> y:\n    y[i] = \"a\n",
     "my.tdl:2:12: expected an expression, found a string without its closing quote"},
    {"aten::f(x) -> y:\n    y[i] = x[i] $\n",
     "my.tdl:2:17: expected the end of the line after the equation, found a character that means nothing here"},
    {"aten::f(x) -> y:\n    y = x[i]\n",
     "my.tdl:2:9: expected reshape(...) after '=': any other result is given indices, as in y[i] = ..., found 'x'"},
};

INSTANTIATE_TEST_SUITE_P(Parse, MalformedText, testing::ValuesIn(kMalformed));

TEST(Parse, MarksThePlaceInTheLine) {
  EXPECT_EQ(message_of("# first\naten::f(x) -> y:\n    y[i = x[i]\n"),
            "my.tdl:3:9: expected ']' after index, found '='\n        y[i = x[i]\n            ^");
}

TEST(Parse, LinesGoOnAfterOperatorsAndInBrackets) {
  Catalogue catalogue;
  const Result<void> added = catalogue.add(
      "aten::f(x,\n    w = null, x_is = true) -> y:  # head\n    y[i] = sum[k](x[i, k] *\n        w[k])  # goes on\n"
      "        if w is null\n        and x_is or 1 == 2\n    where k <\n        3\n    check x in float, y = 1 $ "
      "anything\n\nelementwise aten::g\n    aten::h.out "
      "aten::k\n",
      "my.tdl");
  ASSERT_TRUE(added.has_value()) << added.error().message;
  EXPECT_EQ(catalogue.operators(), (std::vector<std::string>{"aten::f", "aten::g", "aten::h.out", "aten::k"}));
  const Description& f = *catalogue.find("aten::f");
  EXPECT_EQ(f.equations.front().text, "y[i] = sum[k](x[i, k] * w[k])");
  ASSERT_EQ(f.checks.size(), 1U);
  EXPECT_EQ(f.checks.front().text, "x in float, y = 1 $ anything");
  EXPECT_TRUE(catalogue.find("aten::g.Tensor")->elementwise);
}

TEST(Parse, AnOverloadOfItsOwnIsPreferred) {
  Catalogue catalogue;
  ASSERT_TRUE(catalogue.add("elementwise aten::f aten::f.special", "my.tdl").has_value());
  EXPECT_EQ(catalogue.find("aten::f.special")->op, "aten::f.special");
  EXPECT_EQ(catalogue.find("aten::f.other")->op, "aten::f");
  EXPECT_EQ(catalogue.find("aten::g"), nullptr);
}

TEST(Parse, AnErrorLeavesTheCatalogueAsItWas) {
  Catalogue catalogue;
  EXPECT_FALSE(catalogue.add("elementwise aten::f\nelementwise 3\n", "my.tdl").has_value());
  EXPECT_TRUE(catalogue.operators().empty());
}

TEST(Parse, DeepAndLongExpressionsAreRefused) {
  EXPECT_NE(message_of("aten::f(x) -> y:\n    y[i] = " + std::string(100000, '(')).find("nested too deeply"),
            std::string::npos);
  std::string sum = "aten::f(x) -> y:\n    y[i] = x[i]";
  for (int i = 0; i < 100000; ++i) {
    sum += "+1";
  }
  EXPECT_NE(message_of(sum).find("the expression is too long"), std::string::npos);
}

TEST(Parse, ShippedDescriptionsAreRead) { EXPECT_NE(Catalogue::shipped().find("aten::mm"), nullptr); }

}  // namespace
}  // namespace tesser::tdl
