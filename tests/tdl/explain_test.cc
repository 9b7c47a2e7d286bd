#include "tdl/explain.h"

#include <gtest/gtest.h>

#include "part.h"

namespace tesser::tdl {
namespace {

// One line a tensor: "k: bias [0:J] zeros in others".
std::string text_of(const ExplainedCase& explained) {
  std::string text;
  for (const ExplainedCut& cut : explained.cuts) {
    for (const ExplainedTensor& tensor : cut.tensors) {
      text += cut.variable + ": " + tensor.name + " " + tensor.region +
              (tensor.together.empty() ? "" : " " + tensor.together) + (cut.note.empty() ? "" : " (" + cut.note + ")") +
              "\n";
    }
  }
  for (const ExplainedWhole& whole : explained.wholes) {
    text += whole.variable + ": " + whole.reason + "\n";
  }
  return text;
}

TEST(Explain, ConvolutionAsInThePaper) {
  const Catalogue catalogue =
      catalogue_of("aten::conv1d(x, w) -> y:\n    y[n, o, p] = sum[c, r](x[n, c, p + r] * w[o, c, r])\n");
  EXPECT_EQ(text_of(explain(*catalogue.find("aten::conv1d")).cases[0]),
            "n: x [0:N/2, 0:C, 0:P + R - 1]\nn: w [0:O, 0:C, 0:R]\nn: y [0:N/2, 0:O, 0:P] concatenate\n"
            "o: x [0:N, 0:C, 0:P + R - 1]\no: w [0:O/2, 0:C, 0:R]\no: y [0:N, 0:O/2, 0:P] concatenate\n"
            "p: x [0:N, 0:C, 0:P/2 + R - 1]\np: w [0:O, 0:C, 0:R]\np: y [0:N, 0:O, 0:P/2] concatenate\n"
            "c: x [0:N, 0:C/2, 0:P + R - 1]\nc: w [0:O, 0:C/2, 0:R]\nc: y [0:N, 0:O, 0:P] sum\n"
            "r: x [0:N, 0:C, 0:P + R/2 - 1]\nr: w [0:O, 0:C, 0:R/2]\nr: y [0:N, 0:O, 0:P] sum\n");
}

TEST(Explain, StridesGroupsAndQuotients) {
  const Catalogue catalogue = catalogue_of(
      "aten::f(x, groups, stride, padding) -> y:\n"
      "    y[g * filters + o, p...] = x[g, p... * stride - padding]\n"
      "    where g < groups, filters = size(x, 0) / groups, o < filters\n"
      "aten::g(x, stride, padding) -> y:\n    y[p] = sum[r](x[(p + padding - r) / stride])\n");
  EXPECT_EQ(text_of(explain(*catalogue.find("aten::f")).cases[0]),
            "g: x [0:groups/2, -padding:P*stride - padding - stride + 1]\n"
            "g: y [0:filters*groups/2, 0:P] concatenate\n"
            "o: x [0:groups, -padding:P*stride - padding - stride + 1] (only where groups is 1)\n"
            "o: y [0:filters*groups + filters/2 - filters, 0:P] concatenate (only where groups is 1)\n"
            "p...: x [0:groups, -padding:P/2*stride - padding - stride + 1]\n"
            "p...: y [0:filters*groups, 0:P/2] concatenate\n");
  EXPECT_EQ(text_of(explain(*catalogue.find("aten::g")).cases[0]),
            "p: x [ceil((padding - R + 1)/stride):floor((padding + P/2 - 1)/stride) + 1]\n"
            "p: y [0:P/2] concatenate\n"
            "r: x [ceil((padding - R/2 + 1)/stride):floor((padding + P - 1)/stride) + 1]\nr: y [0:P] sum\n");
}

TEST(Explain, AnExtentThatHasANameIsCalledByIt) {
  const Catalogue catalogue = catalogue_of(
      "aten::f(x, w, groups) -> y:\n    y[g] = sum[c](x[g * channels + c] * w[g, c])\n"
      "    where g < groups, channels = size(w, 1)\n");
  EXPECT_EQ(text_of(explain(*catalogue.find("aten::f")).cases[0]),
            "g: x [0:channels*groups/2]\ng: w [0:groups/2, 0:channels]\ng: y [0:groups/2] concatenate\n"
            "c: x [0:channels*groups + channels/2 - channels] (only where groups is 1)\n"
            "c: w [0:groups, 0:channels/2] (only where groups is 1)\nc: y [0:groups] sum (only where groups is 1)\n");
}

TEST(Explain, WhatIsNotCutAndWhy) {
  const Catalogue catalogue = catalogue_of(
      "aten::f(x, b, dim) -> y, z:\n"
      "    y[i, j] = b[j] + sum[k](x[i, k] * b[:h])  if dim == 0\n"
      "    y[i, j] = b[j] + sum[k](x[i, k])\n"
      "    z[i, i] = sqrt(sum[l](x[i, l]))\n");
  const Explanation explanation = explain(*catalogue.find("aten::f"));
  ASSERT_EQ(explanation.cases.size(), 2U);
  EXPECT_EQ(explanation.cases[0].conditions, (std::vector<std::string>{"dim == 0"}));
  EXPECT_EQ(text_of(explanation.cases[0]),
            "j: x [0:I, 0:K]\nj: x [0:I, 0:L]\nj: b [0:J/2]\nj: b [0:H]\nj: y [0:I, 0:J/2] concatenate\nj: z [0:I, "
            "0:I] replicated\n"
            "i: stands in several dimensions of z\nk: a term of y outside the reduction would count in every part\n"
            "h: whole: every part needs all of it\nl: reduced inside an expression of z\n");
  EXPECT_TRUE(explanation.cases[1].conditions.empty());
  EXPECT_NE(text_of(explanation.cases[1]).find("k: b [0:J] zeros in others\n"), std::string::npos);
}

TEST(Explain, PackFunctionsAreKept) {
  const Catalogue catalogue =
      catalogue_of("aten::f(x, dim, start) -> y:\n    y[i...] = x[with(i..., dim, at(i..., dim) + start)]\n");
  EXPECT_EQ(text_of(explain(*catalogue.find("aten::f")).cases[0]),
            "i...: x [with(0:I/2, dim, at(0:I/2, dim) + start)]\ni...: y [0:I/2] concatenate\n");
}

TEST(Explain, EveryShippedDescription) {
  for (const std::string& op : Catalogue::shipped().operators()) {
    const Explanation explanation = explain(*Catalogue::shipped().find(op));
    EXPECT_EQ(explanation.op, op);
    EXPECT_FALSE(explanation.lines.empty());
    EXPECT_EQ(explanation.cases.empty(), explanation.elementwise);
  }
}

}  // namespace
}  // namespace tesser::tdl
