#include "tdl/semantics.h"

#include <gtest/gtest.h>

#include "part.h"

namespace tesser::tdl {
namespace {

TEST(Semantics, MatrixProduct) {
  NodeBuilder mm("aten::mm");
  mm.tensor({6, 5}).tensor({5, 4}).result({6, 4});
  const NodeSemantics semantics = analyzed(mm);
  EXPECT_TRUE(semantics.described());
  EXPECT_EQ(strategies_text(semantics), "i: concatenate; j: concatenate; k: sum");
  const Box rows = part(semantics, {{"i", {2, 5}}});
  EXPECT_EQ(operand_text(semantics, 0, rows), "[2:5, 0:5]");
  EXPECT_EQ(operand_text(semantics, 1, rows), "[0:5, 0:4]");
  EXPECT_EQ(result_text(semantics, 0, rows), "[2:5, 0:4]");
  const Box inner = part(semantics, {{"k", {3, 5}}});
  EXPECT_EQ(operand_text(semantics, 0, inner), "[0:6, 3:5]");
  EXPECT_EQ(operand_text(semantics, 1, inner), "[3:5, 0:4]");
  EXPECT_EQ(result_text(semantics, 0, inner), "[0:6, 0:4]");
}

TEST(Semantics, TheBiasOfAPartialProductIsAddedOnce) {
  NodeBuilder addmm("aten::addmm");
  addmm.tensor({4}).tensor({6, 5}).tensor({5, 4}).result({6, 4});
  const NodeSemantics semantics = analyzed(addmm);
  EXPECT_EQ(strategies_text(semantics), "i: concatenate; j: concatenate; k: sum");
  EXPECT_FALSE(semantics.operand_is_zero(0, part(semantics, {{"k", {0, 3}}})));
  EXPECT_TRUE(semantics.operand_is_zero(0, part(semantics, {{"k", {3, 5}}})));
  EXPECT_FALSE(semantics.operand_is_zero(1, part(semantics, {{"k", {3, 5}}})));
  EXPECT_FALSE(semantics.operand_is_zero(0, part(semantics, {{"i", {3, 6}}})));
  EXPECT_EQ(operand_text(semantics, 0, part(semantics, {{"j", {1, 3}}})), "[1:3]");
}

// Terms outside a reduction that nothing makes vanish forbid cutting it.
TEST(Semantics, TermsOutsideMustVanish) {
  const auto strategies = [](const std::string& equation, std::vector<Shape> shapes) {
    const Catalogue catalogue = catalogue_of("aten::f(x, b) -> y:\n    " + equation + "\n");
    NodeBuilder f("aten::f");
    for (Shape& shape : shapes) {
      f.tensor(std::move(shape));
    }
    f.result({4});
    return strategies_text(analyzed(f, catalogue));
  };
  EXPECT_EQ(strategies("y[i] = sum[k](x[i, k]) + b[i]", {{4, 3}, {4}}), "i: concatenate; k: sum");
  EXPECT_EQ(strategies("y[i] = sum[k](x[i, k]) + 1", {{4, 3}, {4}}), "i: concatenate");
  EXPECT_EQ(strategies("y[i] = sum[k](x[i, k]) + x[i, :l]", {{4, 3}, {4}}), "i: concatenate");
  EXPECT_EQ(strategies("y[i] = sum[k](x[i, k]) * b[i]", {{4, 3}, {4}}), "i: concatenate; k: sum");
  EXPECT_EQ(strategies("y[i] = sum[k](x[i, k] * b[k])", {{4, 3}, {3}}), "i: concatenate; k: sum");
  EXPECT_EQ(strategies("y[i] = max[k](x[i, k])", {{4, 3}, {4}}), "i: concatenate; k: max");
  EXPECT_EQ(strategies("y[i] = min[k](x[i, k])", {{4, 3}, {4}}), "i: concatenate; k: min");
  EXPECT_EQ(strategies("y[i] = prod[k](x[i, k])", {{4, 3}, {4}}), "i: concatenate; k: prod");
  EXPECT_EQ(strategies("y[i] = max[k](x[i, k]) + b[i]", {{4, 3}, {4}}), "i: concatenate");
  EXPECT_EQ(strategies("y[i] = -max[k](x[i, k])", {{4, 3}, {4}}), "i: concatenate");
  EXPECT_EQ(strategies("y[i] = -sum[k](x[i, k])", {{4, 3}, {4}}), "i: concatenate; k: sum");
  EXPECT_EQ(strategies("y[i] = sqrt(sum[k](x[i, k]))", {{4, 3}, {4}}), "i: concatenate");
  EXPECT_EQ(strategies("y[i] = sum[k](x[i, k]) / sum[l](b[l])", {{4, 3}, {4}}), "i: concatenate");
  EXPECT_EQ(strategies("y[i] = sum[k](max[l](x[i, k] * b[l]))", {{4, 3}, {5}}), "i: concatenate; k: sum");
  EXPECT_EQ(strategies("y[i] = sum[k](x[i, k]) + sum[l](b[l])", {{4, 3}, {5}}), "i: concatenate; k: sum; l: sum");
}

NodeBuilder convolution(Shape x, Shape w, Shape y, std::int64_t stride, std::int64_t padding, std::int64_t dilation,
                        std::int64_t groups) {
  const std::size_t dimensions = x.size() - 2;
  const auto all = [&](std::int64_t value) { return std::vector<std::int64_t>(dimensions, value); };
  NodeBuilder node("aten::convolution");
  const std::int64_t filters = w[0];
  node.tensor(std::move(x)).tensor(std::move(w)).tensor({filters});
  node.integers(all(stride))
      .integers(all(padding))
      .integers(all(dilation))
      .with(false)
      .integers(all(0))
      .integer(groups);
  node.result(std::move(y));
  return node;
}

TEST(Semantics, ConvolutionHasHalos) {
  // 9 + 2 * 2 - (2 * (3 - 1) + 1) = 8, / 2 + 1 = 5 rows.
  const NodeBuilder node = convolution({2, 3, 9, 9}, {4, 3, 3, 3}, {2, 4, 5, 5}, 2, 2, 2, 1);
  const NodeSemantics semantics = analyzed(node);
  EXPECT_EQ(strategies_text(semantics),
            "n: concatenate; o: concatenate; p.0: concatenate; p.1: concatenate; c: sum; r.0: sum; r.1: sum");
  const Box whole = semantics.whole_box();
  EXPECT_EQ(operand_text(semantics, 0, whole), "[0:2, 0:3, -2:11, -2:11]");
  const Box rows = part(semantics, {{"p.0", {2, 4}}});  // 2 * 2 - 2 = 2 to 3 * 2 + 2 * 2 - 2 = 8
  EXPECT_EQ(operand_text(semantics, 0, rows), "[0:2, 0:3, 2:9, -2:11]");
  EXPECT_EQ(operand_text(semantics, 1, rows), "[0:4, 0:3, 0:3, 0:3]");
  EXPECT_EQ(result_text(semantics, 0, rows), "[0:2, 0:4, 2:4, 0:5]");
  const Box window = part(semantics, {{"r.1", {1, 3}}});  // 0 * 2 + 1 * 2 - 2 = 0 to 4 * 2 + 2 * 2 - 2 = 10
  EXPECT_EQ(operand_text(semantics, 0, window), "[0:2, 0:3, -2:11, 0:11]");
  EXPECT_TRUE(semantics.operand_is_zero(2, window));
  const Box filters = part(semantics, {{"o", {1, 4}}});
  EXPECT_EQ(operand_text(semantics, 2, filters), "[1:4]");
  EXPECT_EQ(result_text(semantics, 0, filters), "[0:2, 1:4, 0:5, 0:5]");
}

// Filters and channels count inside groups: only the groups can be cut.
TEST(Semantics, GroupsAreCutAsAWhole) {
  const NodeBuilder node = convolution({2, 6, 8}, {9, 2, 3}, {2, 9, 8}, 1, 1, 1, 3);
  const NodeSemantics semantics = analyzed(node);
  EXPECT_EQ(strategies_text(semantics), "n: concatenate; g: concatenate; p.0: concatenate; r.0: sum");
  const Box group = part(semantics, {{"g", {1, 3}}});
  EXPECT_EQ(operand_text(semantics, 0, group), "[0:2, 2:6, -1:9]");
  EXPECT_EQ(operand_text(semantics, 1, group), "[3:9, 0:2, 0:3]");
  EXPECT_EQ(result_text(semantics, 0, group), "[0:2, 3:9, 0:8]");
}

TEST(Semantics, QuotientsBelongToNoElementWhereTheyDoNotDivide) {
  // A transposed convolution by what each place of y receives: x[q] where q * stride + r - padding = p.
  const Catalogue catalogue = catalogue_of(
      "aten::f(x, w, stride, padding) -> y:\n"
      "    y[p] = sum[r](x[(p + padding - r) / stride] * w[r])\n");
  NodeBuilder f("aten::f");
  f.tensor({5}).tensor({4}).integer(3).integer(1).result({14});
  const NodeSemantics semantics = analyzed(f, catalogue);
  EXPECT_EQ(strategies_text(semantics), "p: concatenate; r: sum");
  EXPECT_EQ(operand_text(semantics, 0, semantics.whole_box()), "[0:5]");
  EXPECT_EQ(operand_text(semantics, 0, part(semantics, {{"p", {0, 7}}})), "[0:3]");   // -2 / 3 up, 7 / 3 down
  EXPECT_EQ(operand_text(semantics, 0, part(semantics, {{"p", {7, 14}}})), "[2:5]");  // 5 / 3 up, 14 / 3 down
  EXPECT_TRUE(semantics.operand_region(0, part(semantics, {{"p", {0, 1}}, {"r", {3, 4}}}))[0].empty());
}

TEST(Semantics, OneVariableMayConcatenateOneResultAndSumAnother) {
  const Catalogue catalogue = catalogue_of(
      "aten::native_layer_norm_backward(dy, x, shape, mean, rstd, w, b, mask) -> dx, dw, db:\n"
      "    dx[i..., j...] = f(dy[i..., :j...], x[i..., :j...], mean[i...], rstd[i...], w[:j...])\n"
      "    dw[j...] = sum[i...](dy[i..., j...] * (x[i..., j...] - mean[i...]) * rstd[i...])\n"
      "    db[j...] = sum[i...](dy[i..., j...])\n"
      "    where j... < shape\n");
  NodeBuilder node("aten::native_layer_norm_backward");
  node.tensor({6, 5, 4}).tensor({6, 5, 4}).integers({4}).tensor({6, 5, 1}).tensor({6, 5, 1}).tensor({4}).tensor({4});
  node.with(std::vector<bool>{true, true, true}).result({6, 5, 4}).result({4}).no_result();
  const NodeSemantics semantics = analyze(node.program(), node.node(), catalogue);
  EXPECT_FALSE(semantics.described()) << "mean[i...] has one dimension less than mean";
}

TEST(Semantics, LayerNormBackward) {
  const Catalogue catalogue = catalogue_of(
      "aten::native_layer_norm_backward(dy, x, shape, mean, rstd, w, b, mask) -> dx, dw, db:\n"
      "    dx[i..., j...] = f(dy[i..., :j...], x[i..., :j...], mean[i..., 0 * :j...], rstd[i..., 0 * :j...], "
      "w[:j...])\n"
      "    dw[j...] = sum[i...](dy[i..., j...] * (x[i..., j...] - mean[i..., 0 * :j...]) * rstd[i..., 0 * :j...])\n"
      "    db[j...] = sum[i...](dy[i..., j...])\n"
      "    where j... < shape\n");
  NodeBuilder node("aten::native_layer_norm_backward");
  node.tensor({6, 5, 4}).tensor({6, 5, 4}).integers({4}).tensor({6, 5, 1}).tensor({6, 5, 1}).tensor({4}).tensor({4});
  node.with(std::vector<bool>{true, true, true}).result({6, 5, 4}).result({4}).no_result();
  const NodeSemantics semantics = analyzed(node, catalogue);
  EXPECT_EQ(strategies_text(semantics), "i.0: concatenate sum replicated; i.1: concatenate sum replicated");
  const Box box = part(semantics, {{"i.1", {3, 5}}});
  EXPECT_EQ(operand_text(semantics, 1, box), "[0:6, 3:5, 0:4]");
  EXPECT_EQ(operand_text(semantics, 2, box), "[0:6, 3:5, 0:1]");
  EXPECT_EQ(operand_text(semantics, 4, box), "[0:4]");
  EXPECT_EQ(operand_text(semantics, 5, box), "[0:4]") << "read by no equation: whole";
  EXPECT_EQ(result_text(semantics, 0, box), "[0:6, 3:5, 0:4]");
  EXPECT_EQ(result_text(semantics, 1, box), "[0:4]");
}

TEST(Semantics, AVariableThatAResultDoesNotHaveReplicatesIt) {
  const Catalogue catalogue = catalogue_of("aten::f(x, w) -> y, z:\n    y[i, j] = x[i] * w[j]\n    z[j] = w[j]\n");
  NodeBuilder f("aten::f");
  f.tensor({4}).tensor({3}).result({4, 3}).result({3});
  EXPECT_EQ(strategies_text(analyzed(f, catalogue)), "i: concatenate replicated; j: concatenate concatenate");
}

TEST(Semantics, ElementwiseBroadcasts) {
  NodeBuilder add("aten::add.Tensor");
  add.tensor({4, 1, 5}).tensor({3, 5}).result({4, 3, 5});
  const NodeSemantics semantics = analyzed(add);
  EXPECT_EQ(strategies_text(semantics), "i.0: concatenate; i.1: concatenate; i.2: concatenate");
  const Box box = part(semantics, {{"i.0", {1, 2}}, {"i.1", {2, 3}}, {"i.2", {0, 4}}});
  EXPECT_EQ(operand_text(semantics, 0, box), "[1:2, 0:1, 0:4]");
  EXPECT_EQ(operand_text(semantics, 1, box), "[2:3, 0:4]");
  NodeBuilder scalar("aten::mul.Tensor");
  scalar.tensor({4, 1}).tensor({}).result({4, 1});
  const NodeSemantics semantics_of_scalar = analyzed(scalar);
  EXPECT_EQ(strategies_text(semantics_of_scalar), "i.0: concatenate");
  EXPECT_EQ(operand_text(semantics_of_scalar, 1, part(semantics_of_scalar, {{"i.0", {1, 2}}})), "[]");
}

TEST(Semantics, SumsOverDimensions) {
  NodeBuilder sum("aten::sum.dim_IntList");
  sum.tensor({4, 3, 5}).integers({0, -1}).result({3});
  const NodeSemantics semantics = analyzed(sum);
  EXPECT_EQ(strategies_text(semantics), "i.0: concatenate; j.0: sum; j.1: sum");
  EXPECT_EQ(operand_text(semantics, 0, part(semantics, {{"j.1", {2, 5}}, {"i.0", {0, 1}}})), "[0:4, 0:1, 2:5]");
  NodeBuilder keeping("aten::sum.dim_IntList");
  keeping.tensor({4, 3, 5}).integers({1}).with(true).result({4, 1, 5});
  const NodeSemantics kept = analyzed(keeping);
  EXPECT_EQ(strategies_text(kept), "i.0: concatenate; i.1: concatenate; j.0: sum");
  EXPECT_EQ(result_text(kept, 0, part(kept, {{"i.1", {2, 5}}})), "[0:4, 0:1, 2:5]");
  for (const graph::Argument& all : {graph::Argument(std::vector<std::int64_t>{}), graph::Argument(graph::None{})}) {
    NodeBuilder everything("aten::sum.dim_IntList");
    everything.tensor({4, 3}).with(all).result({});
    EXPECT_EQ(strategies_text(analyzed(everything)), "j.0: sum; j.1: sum");
  }
}

TEST(Semantics, AxesArePermutedInsertedAndKeptWhole) {
  NodeBuilder permute("aten::permute");
  permute.tensor({4, 3, 5}).integers({2, 0, -2}).result({5, 4, 3});
  const NodeSemantics permuted = analyzed(permute);
  EXPECT_EQ(operand_text(permuted, 0, part(permuted, {{"i.2", {1, 2}}, {"i.0", {2, 4}}})), "[2:4, 0:3, 1:2]");
  EXPECT_EQ(result_text(permuted, 0, part(permuted, {{"i.2", {1, 2}}, {"i.0", {2, 4}}})), "[1:2, 2:4, 0:3]");
  NodeBuilder transpose("aten::transpose.int");
  transpose.tensor({4, 3, 5}).integer(0).integer(-1).result({5, 3, 4});
  const NodeSemantics transposed = analyzed(transpose);
  EXPECT_EQ(operand_text(transposed, 0, part(transposed, {{"i.0", {2, 4}}})), "[2:4, 0:3, 0:5]");
  EXPECT_EQ(result_text(transposed, 0, part(transposed, {{"i.0", {2, 4}}})), "[0:5, 0:3, 2:4]");
  NodeBuilder softmax("aten::_softmax");
  softmax.tensor({4, 3, 5}).integer(1).with(false).result({4, 3, 5});
  EXPECT_EQ(strategies_text(analyzed(softmax)), "i.0: concatenate; i.2: concatenate");
  NodeBuilder unsqueeze("aten::unsqueeze");
  unsqueeze.tensor({4, 3}).integer(-1).result({4, 3, 1});
  const NodeSemantics unsqueezed = analyzed(unsqueeze);
  EXPECT_EQ(result_text(unsqueezed, 0, part(unsqueezed, {{"i.1", {1, 3}}})), "[0:4, 1:3, 0:1]");
}

TEST(Semantics, SlicesBeginAndStep) {
  NodeBuilder slice("aten::slice.Tensor");
  slice.tensor({3, 10}).integer(1).integer(-8).integer(9223372036854775807).integer(3).result({3, 3});
  const NodeSemantics semantics = analyzed(slice);  // 2, 5, 8
  EXPECT_EQ(operand_text(semantics, 0, semantics.whole_box()), "[0:3, 2:9]");
  EXPECT_EQ(operand_text(semantics, 0, part(semantics, {{"i.1", {1, 3}}})), "[0:3, 5:9]");
}

// The slice is shorter than what it was taken from, or has one element: neither is broadcast.
TEST(Semantics, ArithmeticIsNoVariableAlone) {
  const Catalogue catalogue = catalogue_of("aten::f(dy, start, step) -> dx:\n    dx[j] = dy[(j - start) / step]\n");
  for (const std::int64_t size : {1, 5}) {
    NodeBuilder f("aten::f");
    f.tensor({size}).integer(0).integer(1).result({8});
    const NodeSemantics semantics = analyzed(f, catalogue);
    EXPECT_EQ(operand_text(semantics, 0, part(semantics, {{"j", {4, 8}}})), "[4:8]") << "unclipped";
  }
}

TEST(Semantics, JoinedListsHaveOneLength) {
  const Catalogue catalogue = catalogue_of(
      "aten::pool(x, kernel, stride) -> y:\n    y[i..., p...] = f(x[i..., p... * stride + :k...])\n    where k... < "
      "kernel\n");
  NodeBuilder pool("aten::pool");
  pool.tensor({2, 3, 9, 9}).integers({3, 2}).integers({2}).result({2, 3, 4, 4});
  const NodeSemantics semantics = analyzed(pool, catalogue);
  EXPECT_EQ(strategies_text(semantics), "i.0: concatenate; i.1: concatenate; p.0: concatenate; p.1: concatenate");
  EXPECT_EQ(operand_text(semantics, 0, part(semantics, {{"p.0", {1, 3}}})), "[0:2, 0:3, 2:7, 0:8]");
}

TEST(Semantics, PlacesOfAListThatAreGiven) {
  const Catalogue catalogue = catalogue_of(
      "aten::index(x, indices[]) -> y:\n"
      "    y[h, j..., k...] = picked(x[insert([h, k...], given(indices), :d...)], indices[j...])  if given(indices) == "
      "[1]\n"
      "    y[j..., k...] = picked(x[insert(k..., given(indices), :d...)], indices[j...])\n");
  NodeBuilder index("aten::index");
  index.list({{4, 5, 3}, {7}}).result({4, 7, 3});
  graph::Node node = index.node();
  const auto refs = std::get<std::vector<graph::ValueRef>>(node.args[0]);
  node.args = {refs[0], std::vector<graph::ValueRef>{{graph::kNone}, refs[1]}};
  const NodeSemantics semantics = analyze(index.program(), node, catalogue);
  EXPECT_EQ(strategies_text(semantics), "h: concatenate; j.0: concatenate; k.0: concatenate");
  const Box box = part(semantics, {{"h", {1, 3}}, {"k.0", {2, 3}}, {"j.0", {0, 4}}});
  EXPECT_EQ(operand_text(semantics, 0, box), "[1:3, 0:5, 2:3]");
  EXPECT_EQ(operand_text(semantics, 1, box), "[0:4]");
  EXPECT_EQ(result_text(semantics, 0, box), "[1:3, 0:4, 2:3]");
}

TEST(Semantics, TensorsOfAListLieBesideEachOther) {
  NodeBuilder cat("aten::cat");
  cat.list({{2, 3}, {2, 1}, {2, 4}}).integer(-1).result({2, 8});
  const NodeSemantics semantics = analyzed(cat);
  EXPECT_EQ(strategies_text(semantics), "i.0: concatenate; j: concatenate");
  const Box box = part(semantics, {{"j", {2, 6}}});
  EXPECT_EQ(operand_text(semantics, 0, box), "[0:2, 2:6]") << "unclipped";
  EXPECT_EQ(operand_text(semantics, 1, box), "[0:2, -1:3]");
  EXPECT_EQ(operand_text(semantics, 2, box), "[0:2, -2:2]");
  EXPECT_EQ(result_text(semantics, 0, box), "[0:2, 2:6]");
}

TEST(Semantics, ResultsOfAListLieBesideEachOther) {
  const Catalogue catalogue = catalogue_of(
      "aten::split(x, size, dim=0) -> ys[]:\n    ys[with(i..., dim, j - offset(ys))] = x[with(i..., dim, j)]\n");
  NodeBuilder split("aten::split.Tensor");
  split.tensor({8, 2}).integer(3).result({3, 2}).result({3, 2}).result({2, 2});
  const NodeSemantics semantics = analyzed(split, catalogue);
  EXPECT_EQ(strategies_text(semantics),
            "i.1: concatenate concatenate concatenate; j: concatenate concatenate concatenate");
  const Box box = part(semantics, {{"j", {2, 5}}});
  EXPECT_EQ(operand_text(semantics, 0, box), "[2:5, 0:2]");
  EXPECT_EQ(result_text(semantics, 0, box), "[2:3, 0:2]");
  EXPECT_EQ(result_text(semantics, 1, box), "[0:2, 0:2]");
  EXPECT_EQ(volume(semantics.result_region(2, box)), 0);
}

struct ViewCase {
  Shape from, to;
  std::string strategies;  // variable: extent
};

TEST(Semantics, ViewsCutBlocksOfRows) {
  const ViewCase cases[] = {
      {{6, 4}, {8, 3}, "i.0: 2"},
      {{2, 5, 12}, {2, 5, 3, 4}, "i.0: 2, i.1: 5, i.2: 3"},
      {{2, 5, 3, 4}, {10, 12}, "i.0: 2, i.1: 3"},
      {{6, 1, 5}, {6, 5}, "i.0: 6, i.1: 5"},
      {{1, 6}, {2, 3, 1}, "i.0: 2"},
      {{3, 5}, {5, 3}, ""},
      {{}, {1, 1}, ""},
      {{1}, {}, ""},
      {{0, 4}, {0, 2, 2}, ""},
      {{7}, {7}, "i.0: 7"},
      {{4, 6}, {24}, "i.0: 4"},
  };
  for (const ViewCase& view : cases) {
    NodeBuilder node("aten::view");
    node.tensor(view.from).integers(view.to).result(view.to);
    const NodeSemantics semantics = analyzed(node);
    std::string text;
    for (const Strategy& strategy : semantics.strategies()) {
      const Variable& cut = semantics.variables()[static_cast<std::size_t>(strategy.variable)];
      text += (text.empty() ? "" : ", ") + cut.name + ": " + std::to_string(cut.extent);
    }
    EXPECT_EQ(text, view.strategies) << shape_text(view.from) << " to " << shape_text(view.to);
    EXPECT_EQ(semantics.operand_region(0, semantics.whole_box()), whole(view.from));
    EXPECT_EQ(semantics.result_region(0, semantics.whole_box()), whole(view.to));
  }
  NodeBuilder node("aten::view");
  node.tensor({6, 4}).integers({8, 3}).result({8, 3});
  const NodeSemantics semantics = analyzed(node);
  const Box second = part(semantics, {{"i.0", {1, 2}}});
  EXPECT_EQ(operand_text(semantics, 0, second), "[3:6, 0:4]");
  EXPECT_EQ(result_text(semantics, 0, second), "[4:8, 0:3]");
}

TEST(Semantics, SizeOneAndEmptyDimensions) {
  NodeBuilder mm("aten::mm");
  mm.tensor({1, 5}).tensor({5, 4}).result({1, 4});
  EXPECT_EQ(strategies_text(analyzed(mm)), "j: concatenate; k: sum") << "a dimension of one is not cut";
  NodeBuilder empty("aten::mm");
  empty.tensor({3, 0}).tensor({0, 4}).result({3, 4});
  const NodeSemantics semantics = analyzed(empty);
  EXPECT_EQ(strategies_text(semantics), "i: concatenate; j: concatenate");
  EXPECT_EQ(operand_text(semantics, 0, semantics.whole_box()), "[0:3, 0:0]");
  EXPECT_EQ(result_text(semantics, 0, part(semantics, {{"i", {1, 3}}})), "[1:3, 0:4]");
  const Box nothing = part(semantics, {{"i", {2, 2}}});
  EXPECT_EQ(volume(semantics.operand_region(1, nothing)), 0) << "a part of nothing reads nothing";
  EXPECT_EQ(volume(semantics.result_region(0, nothing)), 0);
}

TEST(Semantics, WithoutADescriptionNothingIsCut) {
  NodeBuilder node("aten::there_is_no_such_operator");
  node.tensor({4, 3}).result({4});
  const NodeSemantics semantics = analyzed(node);
  EXPECT_FALSE(semantics.described());
  EXPECT_TRUE(semantics.strategies().empty());
  EXPECT_TRUE(semantics.whole_box().empty());
  EXPECT_EQ(operand_text(semantics, 0, {}), "[0:4, 0:3]");
  EXPECT_EQ(result_text(semantics, 0, {}), "[0:4]");
}

TEST(Semantics, AnEquationThatDoesNotHoldLeavesTheNodeWithoutDescription) {
  const NodeBuilder node = [] {
    NodeBuilder transposed("aten::convolution");
    transposed.tensor({2, 3, 4}).tensor({3, 5, 2}).null().integers({2}).integers({0}).integers({1}).with(true);
    transposed.integers({0}).integer(1).result({2, 5, 8});
    return transposed;
  }();
  const Catalogue catalogue = catalogue_of(
      "aten::convolution(x, w, b, s, p, d, transposed, o, groups) -> y:\n    y[n, c, p...] = x[n, c, p...]  if not "
      "transposed\n");
  const NodeSemantics semantics = analyze(node.program(), node.node(), catalogue);
  EXPECT_FALSE(semantics.described());
  EXPECT_EQ(semantics.misfit(),
            "no equation of a result holds for such a call; described in my.tdl:1 (aten::convolution)");
}

TEST(Semantics, ADescriptionThatDoesNotFitIsNone) {
  NodeBuilder mm("aten::mm");
  mm.tensor({6, 5}).tensor({4, 4}).result({6, 4});
  const NodeSemantics semantics = analyze(mm.program(), mm.node(), core());
  EXPECT_FALSE(semantics.described());
  EXPECT_TRUE(semantics.variables().empty() && semantics.strategies().empty());
  EXPECT_EQ(operand_text(semantics, 1, {}), "[0:4, 0:4]") << "every worker needs all of it";
  EXPECT_EQ(result_text(semantics, 0, {}), "[0:6, 0:4]");
  EXPECT_TRUE(semantics.misfit().starts_with(
      "variable k has extent 5, and 'b' has 4 there; described in " TESSER_SOURCE_DIR "/tests/tdl/core.tdl:"))
      << semantics.misfit();
  NodeBuilder rank("aten::mm");
  rank.tensor({6, 5, 1}).tensor({5, 4}).result({6, 4});
  EXPECT_FALSE(analyze(rank.program(), rank.node(), core()).described());
}

TEST(Semantics, ADescriptionWhoseLocalCallDoesNotFitAPartIsNone) {
  const Catalogue catalogue = catalogue_of(
      "aten::f(x, n) -> y:\n    y[i] = x[i]\n    local aten::f(x, n) from [begin_of(i) * n]\n"
      "aten::g(x) -> y:\n    y[i] = x[i]\n    local aten::g(x) from [begin(x)[0] + 1]\n");
  NodeBuilder f("aten::f");
  f.tensor({4}).integer(1).result({4});
  EXPECT_EQ(strategies_text(analyzed(f, catalogue)), "i: concatenate");
  NodeBuilder late("aten::f");  // right for the first part alone
  late.tensor({4}).integer(2).result({4});
  EXPECT_EQ(analyze(late.program(), late.node(), catalogue).misfit(),
            "the local call of a part: 'from' says that the call makes [4:4], but the part is [2:4]; described in "
            "my.tdl:1 (aten::f)");
  NodeBuilder g("aten::g");
  g.tensor({4}).result({4});
  EXPECT_FALSE(analyze(g.program(), g.node(), catalogue).described());
}

}  // namespace
}  // namespace tesser::tdl
