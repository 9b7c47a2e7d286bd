// Descriptions that are wrong are caught by running parts; right ones pass.
#include "runtime/description_check.h"

#include <string>

#include <gtest/gtest.h>

#include "tdl/catalogue.h"
#include "tdl/description.h"

namespace tesser::runtime {
namespace {

DescriptionCheck check(const std::string& text, const std::string& op) {
  tdl::Catalogue catalogue;
  const auto added = catalogue.add(text, "my.tdl");
  EXPECT_TRUE(added.has_value()) << (added ? "" : added.error().message);
  auto checked = check_description(catalogue, op, {.seed = 1, .cases = 40});
  EXPECT_TRUE(checked.has_value()) << (checked ? "" : checked.error().message);
  return checked ? std::move(*checked) : DescriptionCheck();
}

struct Mistake {
  const char* name;
  const char* op;
  const char* text;
  const char* message;  // in the failure
};

class WrongDescription : public ::testing::TestWithParam<Mistake> {};

const Mistake kMistakes[] = {
    {"SumInPlaceOfMaximum", "aten::amax",
     R"(aten::amax(x, dim, keepdim=false) -> y:
    y[i...] = sum[j...](x[insert(i..., dim, j...)])
    check i... = 2, dim in [0] [1], x[i...], y[reduced(i..., dim, false)])",
     "result 'y' differs"},
    {"ForgottenReduction", "aten::_softmax",
     R"(aten::_softmax(x, dim, half_to_float) -> y:
    y[i...] = softmax(x[i...])
    check i... in 1..3, dim = -1, half_to_float = false, x[i...])",
     "result 'y' differs"},
    {"WrongAxis", "aten::cumsum",
     R"(aten::cumsum(x, dim) -> y:
    y[:i, j] = running(x[:i, j])
    check dim = 1, x[i, j], y[i, j])",
     "cut along j"},
    {"TransposeForgotten", "aten::t",
     R"(aten::t(x) -> y:
    y[i, j] = x[i, j]
    check i in 2..5, x[i, i], y[i, i])",
     "cut along i"},
    {"HaloOffByOne", "aten::convolution",
     R"(aten::convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups) -> y:
    y[n, o, p...] = sum[:c, :r...](x[n, :c, p... + :r... - padding + 1] * w[o, :c, :r...])
    local aten::convolution(padded(x), w, null, stride, 0 * padding, dilation, transposed, output_padding, groups)
    check bias = null, stride = [1], padding = [1], dilation = [1], transposed = false, output_padding = [0], groups = 1, h in 3..6, x[n, c, h], w[o, c, 3], y[n, o, h])",
     "p.0"},
    {"HaloMissing", "aten::convolution",
     R"(aten::convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups) -> y:
    y[n, o, p...] = sum[:c](x[n, :c, p...] * w[o, :c, :r...])
    check bias = null, stride = [1], padding = [0], dilation = [1], transposed = false, output_padding = [0], groups = 1, h in 3..6, x[n, c, h], w[o, c, 2], y[n, o, h - 1])",
     "p.0"},
    {"BiasInEveryPart", "aten::addmm",
     R"(aten::addmm(bias, a, b) -> c:
    c[i, j] = sum[k](bias[j] + a[i, k] * b[k, j])
    check bias[j], a[i, k], b[k, j])",
     "cut along k"},
    {"OffsetForgotten", "aten::slice.Tensor",
     R"(aten::slice.Tensor(x, dim, start, end) -> y:
    y[i] = x[i + start]
    check dim = 0, start = 1, end = 100, n in 3..7, x[n], y[n - 1])",
     "slice"},
    {"DiagonalNotShifted", "aten::tril",
     R"(aten::tril(x) -> y:
    y[i, j] = x[i, j]
    check x[i, j])",
     "result 'y' differs"},
    {"NumbersOfThePart", "tesser::dropout",
     R"(tesser::dropout(x, p, seed, step, id) -> y:
    y[i...] = dropped(x[i...], seed[], step[])
    check i... in 1..2, p = 0.5, x[i...], seed[] in int64, step[] in int64, id = 0)",
     "result 'y' differs"},
    {"PlacesInTheConcatenationWrong", "aten::cat",
     R"(aten::cat(tensors[]) -> y:
    y[j] = tensors[j + offset(tensors)]
    check tensors[each], y[total])",
     "cut along j"},
    {"PlacesOfThePart", "aten::argmax",
     R"(aten::argmax(x) -> y:
    y[] = max[i](x[i])
    check x[i], y[] in int64)",
     "result 'y' differs"},
};
INSTANTIATE_TEST_SUITE_P(Mistakes, WrongDescription, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(WrongDescription, IsCaught) {
  const Mistake& mistake = GetParam();
  const DescriptionCheck checked = check(mistake.text, mistake.op);
  EXPECT_NE(checked.failure.find(mistake.message), std::string::npos) << checked.failure;
  EXPECT_NE(checked.failure.find("my.tdl:1"), std::string::npos) << checked.failure;
  EXPECT_NE(checked.failure.find("smallest call"), std::string::npos) << checked.failure;
}

TEST(DescriptionCheck, TheSmallestCallIsShown) {
  const DescriptionCheck checked = check(kMistakes[8].text, kMistakes[8].op);
  // Two rows or two columns are needed to see that the diagonal is not shifted.
  EXPECT_TRUE(checked.failure.find("float32[1, 2]") != std::string::npos ||
              checked.failure.find("float32[2, 1]") != std::string::npos)
      << checked.failure;
}

TEST(DescriptionCheck, RightDescriptionsPass) {
  const DescriptionCheck checked = check(R"(
aten::addmm(bias, a, b) -> c:
    c[i, j] = bias[j] + sum[k](a[i, k] * b[k, j])
    check bias[j], a[i, k], b[k, j]
)",
                                         "aten::addmm");
  EXPECT_EQ(checked.failure, "");
  EXPECT_EQ(checked.calls, 40);
  EXPECT_GT(checked.strategies, 60);
  EXPECT_GT(checked.parts, 500);
}

TEST(DescriptionCheck, ADescriptionWithoutCheckClauseIsRefused) {
  tdl::Catalogue catalogue;
  ASSERT_TRUE(catalogue.add("aten::neg(x) -> y:\n    y[i...] = x[i...]\n", "my.tdl"));
  const auto checked = check_description(catalogue, "aten::neg", {});
  ASSERT_FALSE(checked.has_value());
  EXPECT_NE(checked.error().message.find("my.tdl:1"), std::string::npos) << checked.error().message;
  EXPECT_NE(checked.error().message.find("no check clause"), std::string::npos) << checked.error().message;
  EXPECT_FALSE(check_description(catalogue, "aten::nothing", {}).has_value());
}

TEST(DescriptionCheck, AClauseThatDrawsWhatTheKernelRefusesIsRefused) {
  tdl::Catalogue catalogue;
  ASSERT_TRUE(
      catalogue.add("aten::mm(a, b) -> c:\n    c[i, j] = sum[k](a[i, k] * b[k, j])\n"
                    "    check a[i, k], b[j, l], c[i, j]\n",
                    "my.tdl"));
  const auto checked = check_description(catalogue, "aten::mm", {});
  ASSERT_FALSE(checked.has_value());
  EXPECT_NE(checked.error().message.find("aten::mm"), std::string::npos) << checked.error().message;
}

TEST(DescriptionCheck, DefectsOfAClauseAreNamedWithTheirPlace) {
  for (const auto& [clause, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a[i, k], b[k, j", "expected ']' at its end"},
           {"a[i, k], b[k, j] in floats", "no kind of data 'floats'"},
           {"a[i, k]", "no item says what 'b' is"},
           {"a[i, k], b[k, j], d[i]", "'d' is neither an argument nor a result"},
           {"a[i, k], b[k, unknown(j)]", "no function 'unknown'"}}) {
    tdl::Catalogue catalogue;
    ASSERT_TRUE(catalogue.add(
        "aten::mm(a, b) -> c:\n    c[i, j] = sum[k](a[i, k] * b[k, j])\n    check " + std::string(clause) + "\n",
        "my.tdl"))
        << clause;
    const auto checked = check_description(catalogue, "aten::mm", {});
    ASSERT_FALSE(checked.has_value()) << clause;
    EXPECT_NE(checked.error().message.find("my.tdl"), std::string::npos) << checked.error().message;
    EXPECT_NE(checked.error().message.find(message), std::string::npos) << checked.error().message;
  }
}

// One test for each shard, so that they may run beside each other.
class ShippedDescriptions : public ::testing::TestWithParam<std::size_t> {};
constexpr std::size_t kShards = 4;
INSTANTIATE_TEST_SUITE_P(Shards, ShippedDescriptions, ::testing::Range<std::size_t>(0, kShards));

TEST_P(ShippedDescriptions, AgreeWithTheKernels) {
  const tdl::Catalogue& shipped = tdl::Catalogue::shipped();
  const std::vector<std::string> operators = shipped.operators();
  for (std::size_t i = GetParam(); i < operators.size(); i += kShards) {
    const auto checked = check_description(shipped, operators[i], {.seed = 1, .cases = 6});
    EXPECT_TRUE(checked.has_value()) << checked.error().message;
    if (checked) {
      EXPECT_EQ(checked->failure, "");
    }
  }
}

}  // namespace
}  // namespace tesser::runtime
