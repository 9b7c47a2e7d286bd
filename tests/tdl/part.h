// Parts of a node by the names of its variables, for tests.
#pragma once

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "node_builder.h"
#include "tdl/semantics.h"

namespace tesser::tdl {

// Plain descriptions of some operators, kept apart from the shipped ones, whose tests are those of `tesser tdl check`.
inline const Catalogue& core() {
  static const Catalogue catalogue = [] {
    Catalogue filled;
    const Result<void> added = filled.add_file(TESSER_SOURCE_DIR "/tests/tdl/core.tdl");
    EXPECT_TRUE(added.has_value()) << added.error().message;
    return filled;
  }();
  return catalogue;
}

inline NodeSemantics analyzed(const NodeBuilder& builder, const Catalogue& catalogue = core()) {
  NodeSemantics semantics = analyze(builder.program(), builder.node(), catalogue);
  EXPECT_EQ(semantics.misfit(), "");
  return semantics;
}

inline int variable(const NodeSemantics& semantics, const std::string& name) {
  for (std::size_t v = 0; v < semantics.variables().size(); ++v) {
    if (semantics.variables()[v].name == name) {
      return static_cast<int>(v);
    }
  }
  ADD_FAILURE() << "no variable " << name;
  return 0;
}

// The whole box with some intervals replaced.
inline Box part(const NodeSemantics& semantics, const std::map<std::string, Interval>& intervals) {
  Box box = semantics.whole_box();
  for (const auto& [name, interval] : intervals) {
    box[static_cast<std::size_t>(variable(semantics, name))] = interval;
  }
  return box;
}

inline std::string operand_text(const NodeSemantics& semantics, std::size_t operand, const Box& box) {
  return region_text(semantics.operand_region(operand, box));
}
inline std::string result_text(const NodeSemantics& semantics, std::size_t result, const Box& box) {
  return region_text(semantics.result_region(result, box));
}

// "i: concatenate; k: sum", of several results "n: concatenate sum".
inline std::string strategies_text(const NodeSemantics& semantics) {
  std::string text;
  for (const Strategy& strategy : semantics.strategies()) {
    text += (text.empty() ? "" : "; ") + semantics.variables()[static_cast<std::size_t>(strategy.variable)].name + ":";
    for (const Outcome outcome : strategy.outcomes) {
      text += " " + std::string(outcome_name(outcome));
    }
  }
  return text;
}

inline Catalogue catalogue_of(const std::string& text) {
  Catalogue catalogue;
  const Result<void> added = catalogue.add(text, "my.tdl");
  EXPECT_TRUE(added.has_value()) << added.error().message;
  return catalogue;
}

}  // namespace tesser::tdl
