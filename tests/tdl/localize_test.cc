#include <gtest/gtest.h>

#include "part.h"
#include "tdl/semantics.h"

namespace tesser::tdl {
namespace {

LocalCall localized(const NodeBuilder& node, const NodeSemantics& semantics, const Box& box,
                    const Catalogue& catalogue = core()) {
  const Result<LocalCall> call = localize(node.program(), node.node(), semantics, catalogue, box);
  EXPECT_TRUE(call.has_value()) << call.error().message;
  return *call;
}

TEST(Localize, WithoutALocalClauseTheCallStaysAsItIs) {
  NodeBuilder mm("aten::mm");
  mm.tensor({6, 5}).tensor({5, 4}).result({6, 4});
  const NodeSemantics semantics = analyzed(mm);
  const LocalCall call = localized(mm, semantics, part(semantics, {{"k", {2, 5}}, {"i", {0, 3}}}));
  EXPECT_FALSE(call.empty);
  EXPECT_EQ(call.op, "aten::mm");
  EXPECT_EQ(call.args, mm.node().args);
  EXPECT_EQ(call.argument_operands, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(region_text(call.operands[0].region), "[0:3, 2:5]");
  EXPECT_EQ(region_text(call.operands[0].given), "[0:3, 2:5]");
  EXPECT_EQ(call.results[0].outcome, Outcome::kSum);
  EXPECT_EQ(region_text(call.results[0].region), "[0:3, 0:4]");
  EXPECT_EQ(region_text(call.results[0].produced), "[0:3, 0:4]");
  EXPECT_EQ(localized(mm, semantics, part(semantics, {{"i", {0, 3}}})).results[0].outcome, Outcome::kConcatenate);
}

TEST(Localize, ConvolutionIsGivenItsHaloAndItsPadding) {
  NodeBuilder node("aten::convolution");
  node.tensor({2, 6, 9}).tensor({4, 3, 3}).tensor({4}).integers({2}).integers({2}).integers({2}).with(false);
  node.integers({0}).integer(2).result({2, 4, 5});
  const NodeSemantics semantics = analyzed(node);
  const LocalCall call = localized(node, semantics, part(semantics, {{"p.0", {0, 2}}, {"g", {1, 2}}}));
  EXPECT_EQ(region_text(call.operands[0].region), "[0:2, 3:6, 0:5]");
  EXPECT_EQ(region_text(call.operands[0].given), "[0:2, 3:6, -2:5]");
  EXPECT_EQ(region_text(call.operands[1].given), "[2:4, 0:3, 0:3]");
  EXPECT_EQ(region_text(call.operands[2].given), "[2:4]");
  EXPECT_EQ(region_text(call.results[0].region), "[0:2, 2:4, 0:2]");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(call.args[3]), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(call.args[4]), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(std::get<bool>(call.args[6]), false);
  EXPECT_EQ(std::get<std::int64_t>(call.args[8]), 1);
  EXPECT_EQ(call.argument_operands, (std::vector<std::size_t>{0, 1, 2}));
}

// A copy with zeros around it would cost memory, and the gradient of the input would be computed around its borders
// too.
TEST(Localize, ConvolutionsPadByThemselvesWhereNoImageIsCut) {
  const Catalogue& shipped = Catalogue::shipped();
  NodeBuilder forward("aten::convolution");
  forward.tensor({8, 6, 9, 12}).tensor({4, 6, 3, 3}).null().integers({2, 2}).integers({1, 1}).integers({1, 1});
  forward.with(false).integers({0, 0}).integer(1).result({8, 4, 5, 6});
  const NodeSemantics forward_semantics = analyzed(forward, shipped);
  const LocalCall batch = localized(forward, forward_semantics, part(forward_semantics, {{"n", {0, 4}}}), shipped);
  EXPECT_EQ(batch.args, forward.node().args);
  EXPECT_EQ(region_text(batch.operands[0].given), "[0:4, 0:6, 0:9, 0:12]");
  const LocalCall rows = localized(forward, forward_semantics, part(forward_semantics, {{"p.0", {0, 2}}}), shipped);
  EXPECT_EQ(region_text(rows.operands[0].given), "[0:8, 0:6, -1:4, -1:12]");

  const auto backward = [](bool input) {
    NodeBuilder node("aten::convolution_backward");
    node.tensor({8, 4, 5, 6}).tensor({8, 6, 9, 12}).tensor({4, 6, 3, 3}).null().integers({2, 2}).integers({1, 1});
    node.integers({1, 1}).with(false).integers({0, 0}).integer(1).with(std::vector<bool>{input, !input, false});
    return input ? node.result({8, 6, 9, 12}).no_result().no_result()
                 : node.no_result().result({4, 6, 3, 3}).no_result();
  };
  const NodeBuilder input = backward(true);
  const NodeSemantics input_semantics = analyzed(input, shipped);
  const LocalCall gradient = localized(input, input_semantics, part(input_semantics, {{"n", {0, 4}}}), shipped);
  EXPECT_EQ(gradient.op, "aten::convolution");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(gradient.args[4]), (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(gradient.args[7]), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(region_text(gradient.operands[0].given), "[0:4, 0:4, 0:5, 0:6]");
  EXPECT_EQ(region_text(gradient.results[0].produced), "[0:4, 0:6, 0:9, 0:12]");
  const NodeBuilder weight = backward(false);
  const NodeSemantics weight_semantics = analyzed(weight, shipped);
  const LocalCall sum = localized(weight, weight_semantics, part(weight_semantics, {{"n", {0, 4}}}), shipped);
  EXPECT_EQ(sum.args, weight.node().args);
  EXPECT_EQ(region_text(sum.operands[1].given), "[0:4, 0:6, 0:9, 0:12]");

  NodeBuilder upward("aten::convolution");
  upward.tensor({8, 6, 5, 7}).tensor({6, 4, 2, 2}).null().integers({2, 2}).integers({0, 0}).integers({1, 1});
  upward.with(true).integers({0, 0}).integer(1).result({8, 4, 10, 14});
  const NodeSemantics upward_semantics = analyzed(upward, shipped);
  const LocalCall up = localized(upward, upward_semantics, part(upward_semantics, {{"n", {0, 4}}}), shipped);
  EXPECT_EQ(up.args, upward.node().args);
  EXPECT_EQ(region_text(up.operands[0].given), "[0:4, 0:6, 0:5, 0:7]");
  EXPECT_EQ(region_text(up.results[0].produced), "[0:4, 0:4, 0:10, 0:14]");
}

TEST(Localize, TheBiasIsZeroInAllButTheFirstPartOfASum) {
  NodeBuilder addmm("aten::addmm");
  addmm.tensor({4}).tensor({6, 5}).tensor({5, 4}).result({6, 4});
  const NodeSemantics semantics = analyzed(addmm);
  EXPECT_FALSE(localized(addmm, semantics, part(semantics, {{"k", {0, 2}}})).operands[0].zero);
  EXPECT_TRUE(localized(addmm, semantics, part(semantics, {{"k", {2, 5}}})).operands[0].zero);
}

TEST(Localize, ViewsTakeTheSizeOfThePart) {
  NodeBuilder view("aten::view");
  view.tensor({6, 4}).integers({8, -1}).result({8, 3});
  const NodeSemantics semantics = analyzed(view);
  const LocalCall call = localized(view, semantics, part(semantics, {{"i.0", {1, 2}}}));
  EXPECT_EQ(call.op, "aten::view");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(call.args[1]), (std::vector<std::int64_t>{4, 3}));
}

TEST(Localize, ArgumentsMayBeReorderedLeftOutAndComputed) {
  const Catalogue catalogue = catalogue_of(
      "aten::f(x, xs[], w, n, flag) -> y:\n"
      "    y[i, j] = x[i] * w[j] * xs[i]\n"
      "    local aten::h(w, x, xs, begin(y), [n + 1, begin_of(j)], null, 0.5, \"mean\", size(w, 0), n * 0.5)  if flag\n"
      "    local aten::g(x, x, [true, exists(w)], begin_of(i) + size_of(i), local_shape(y)[-1])\n");
  const auto build = [](bool flag) {
    NodeBuilder f("aten::f");
    f.tensor({4}).list({{4}, {4}}).tensor({3}).integer(7).with(flag).result({4, 3});
    return f;
  };
  const NodeBuilder first = build(true);
  const NodeSemantics semantics = analyzed(first, catalogue);
  const Box box = part(semantics, {{"i", {1, 3}}, {"j", {1, 3}}});
  const LocalCall h = localized(first, semantics, box, catalogue);
  EXPECT_EQ(h.op, "aten::h");
  EXPECT_EQ(h.argument_operands, (std::vector<std::size_t>{3, 0, 1, 2}));
  EXPECT_EQ(h.args[2], first.node().args[1]);
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(h.args[3]), (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(h.args[4]), (std::vector<std::int64_t>{8, 1}));
  EXPECT_TRUE(std::holds_alternative<graph::None>(h.args[5]));
  EXPECT_EQ(std::get<double>(h.args[6]), 0.5);
  EXPECT_EQ(std::get<std::string>(h.args[7]), "mean");
  EXPECT_EQ(std::get<std::int64_t>(h.args[8]), 3);
  EXPECT_EQ(std::get<double>(h.args[9]), 3.5);
  const NodeBuilder second = build(false);
  const LocalCall g = localized(second, semantics, box, catalogue);
  EXPECT_EQ(g.op, "aten::g");
  EXPECT_EQ(g.argument_operands, (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(std::get<std::vector<bool>>(g.args[2]), (std::vector<bool>{true, true}));
  EXPECT_EQ(std::get<std::int64_t>(g.args[3]), 3);
  EXPECT_EQ(std::get<std::int64_t>(g.args[4]), 2);
}

TEST(Localize, ALocalResultIsCropped) {
  const Catalogue catalogue = catalogue_of(
      "aten::f(x, n) -> y:\n    y[i, j] = x[i, (j - :before) / n]\n    where before < n\n"
      "    local aten::f(x, n) from [begin(x)[0], begin(x)[1] * n : (begin(x)[1] + local_shape(x)[1]) * n]\n");
  NodeBuilder f("aten::f");
  f.tensor({2, 4}).integer(3).result({2, 12});
  const NodeSemantics semantics = analyzed(f, catalogue);
  const LocalCall call = localized(f, semantics, part(semantics, {{"j", {3, 7}}}), catalogue);
  EXPECT_EQ(region_text(call.operands[0].region), "[0:2, 1:3]");
  EXPECT_EQ(region_text(call.results[0].produced), "[0:2, 3:9]");
  EXPECT_EQ(region_text(call.results[0].region), "[0:2, 3:7]");
}

TEST(Localize, AReplicatedVariableRepeatsResults) {
  const Catalogue catalogue =
      catalogue_of("aten::f(x, w) -> y, z:\n    y[i, j] = sum[k](x[i, k] * w[j, k])\n    z[j] = sum[k](w[j, k])\n");
  NodeBuilder f("aten::f");
  f.tensor({4, 5}).tensor({3, 5}).result({4, 3}).result({3});
  const NodeSemantics semantics = analyzed(f, catalogue);
  const LocalCall later = localized(f, semantics, part(semantics, {{"i", {2, 4}}}), catalogue);
  EXPECT_EQ(later.results[0].outcome, Outcome::kConcatenate);
  EXPECT_EQ(later.results[1].outcome, Outcome::kReplicated);
  EXPECT_TRUE(later.results[1].repeated);
  const LocalCall both = localized(f, semantics, part(semantics, {{"i", {2, 4}}, {"k", {0, 2}}}), catalogue);
  EXPECT_EQ(both.results[1].outcome, Outcome::kSum);
  EXPECT_TRUE(both.results[1].repeated);
  EXPECT_FALSE(localized(f, semantics, part(semantics, {{"i", {0, 2}}, {"k", {2, 5}}}), catalogue).results[1].repeated);
}

TEST(Localize, EmptyPartsAndUndescribedNodes) {
  NodeBuilder mm("aten::mm");
  mm.tensor({6, 5}).tensor({5, 4}).result({6, 4});
  const NodeSemantics semantics = analyzed(mm);
  const LocalCall call = localized(mm, semantics, part(semantics, {{"i", {6, 6}}}));
  EXPECT_TRUE(call.empty);
  EXPECT_EQ(volume(call.results[0].region), 0);
  NodeBuilder other("aten::there_is_no_such_operator");
  other.tensor({4, 3}).integer(3).result({4}).no_result();
  const LocalCall whole_call = localized(other, analyzed(other), {});
  EXPECT_FALSE(whole_call.empty);
  EXPECT_EQ(whole_call.args, other.node().args);
  EXPECT_EQ(region_text(whole_call.results[0].region), "[0:4]");
  EXPECT_EQ(whole_call.results[0].outcome, Outcome::kConcatenate);
  EXPECT_TRUE(whole_call.results[1].region.empty());
}

}  // namespace
}  // namespace tesser::tdl
