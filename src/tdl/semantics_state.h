// What NodeSemantics holds. Internal to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tdl/semantics.h"

namespace tesser::tdl {

// One access of an operand: an index for each of its dimensions.
using AccessIndex = std::vector<AffineIndex>;

struct OperandUse {
  std::vector<AccessIndex> accesses;  // distinct
  // Of each place where it is read: the variables that make it zero when the box does not begin at 0 in one of them.
  std::vector<std::vector<int>> zero_variables;
  bool needed = true;  // false: no equation reads it and the local call leaves it out
};

struct NodeSemantics::State {
  bool described = false;
  std::string misfit;
  std::vector<Variable> variables;
  std::vector<Strategy> strategies;
  std::vector<Shape> operand_shapes;
  std::vector<Shape> result_shapes;  // {} of one that does not exist
  std::vector<bool> result_exists;
  std::vector<OperandUse> operands;
  std::vector<AccessIndex> results;
  std::vector<std::vector<std::optional<AffineIndex>>> operand_indices;
  std::vector<std::vector<std::optional<AffineIndex>>> result_indices;

  // Of the description: for each of its variables the first of the node, and how many; -1 where it has none.
  std::vector<int> first_variable;
  std::vector<std::int64_t> pack_lengths;
};

// Gives localize() what it needs.
class SemanticsBuilder {
 public:
  static const NodeSemantics::State& state(const NodeSemantics& semantics) { return *semantics.state_; }
  static NodeSemantics wrap(std::shared_ptr<const NodeSemantics::State> state) {
    NodeSemantics semantics;
    semantics.state_ = std::move(state);
    return semantics;
  }
  using State = NodeSemantics::State;
};

}  // namespace tesser::tdl
