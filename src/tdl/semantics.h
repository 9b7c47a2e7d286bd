// What cutting one node means: its variables, strategies, and the regions that a part reads and makes
// (Tofu, EuroSys 2019, section 4; docs/tdl.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "tdl/catalogue.h"
#include "tdl/region.h"

namespace tesser::tdl {

struct Variable {
  std::string name;  // of the description; variables of a pack are "i.0", "i.1", ...
  std::int64_t extent = 1;
  bool whole = false;  // never cut
};

enum class Outcome : std::uint8_t { kConcatenate, kSum, kMax, kMin, kProduct, kReplicated };
// "concatenate", "sum", ...: in descriptions, lowered programs and tables alike.
std::string_view outcome_name(Outcome outcome);
std::optional<Outcome> reduction_from_name(std::string_view name);  // "sum", "max", "min", "prod"
// Whether parts along the variable give partial results, which are combined.
constexpr bool is_reduction(Outcome outcome) {
  return outcome != Outcome::kConcatenate && outcome != Outcome::kReplicated;
}

// Cutting one variable.
struct Strategy {
  int variable = 0;
  std::vector<Outcome> outcomes;  // by result of the node, kReplicated for one that does not exist
};

// One affine form over the variables of a node, over a positive divisor: (constant + sum coefficients[v] * v) /
// divisor.
struct AffineIndex {
  std::int64_t constant = 0;
  std::vector<std::pair<int, std::int64_t>> coefficients;  // variable, coefficient (never 0); at most one a variable
  std::int64_t divisor = 1;
  bool computed = false;  // by arithmetic, even if one variable is all that is left: j - start where start is 0
};

// The semantics of one node at its shapes and attributes.
//
// Operands are the values that the node reads, as graph::values_read counts them: argument order, lists spread out,
// duplicates kept. Results are counted as node.outputs.
class NodeSemantics {
 public:
  bool described() const;  // false: no description that fits, so there are no variables and no strategies
  // Why the operator's description does not fit, and where it stands; empty where it does or where there is none.
  const std::string& misfit() const;
  const std::vector<Variable>& variables() const;
  const std::vector<Strategy>& strategies() const;

  Box whole_box() const;
  // Whether a part computes nothing: an interval is empty that is something in the whole.
  bool is_empty(const Box& box) const;

  // What a part reads of an operand: unclipped, with the rank of the operand. An operand that no equation accesses is
  // read whole, or not at all when the local call leaves it out. When an operand is accessed several times, the hull.
  Region operand_region(std::size_t operand, const Box& box) const;
  // The part's rectangle of a result: for outcomes other than concatenate the others' variables decide.
  Region result_region(std::size_t result, const Box& box) const;
  // Whether the part gets zeros in place of the operand: it stands only outside reductions that are cut, and the box
  // does not begin at 0 in a variable of those.
  bool operand_is_zero(std::size_t operand, const Box& box) const;

  // The indices themselves, for tables and for the alignment of cuts: one a dimension, nothing where a dimension is not
  // one affine form (accessed several times in different ways, or not at all: it is read whole).
  const std::vector<std::optional<AffineIndex>>& operand_index(std::size_t operand) const;
  const std::vector<std::optional<AffineIndex>>& result_index(std::size_t result) const;

 private:
  friend class SemanticsBuilder;
  struct State;
  std::shared_ptr<const State> state_;  // shared by copies; nodes of the same signature may share one
};

// A node to which its operator's description does not fit (ranks, attributes, the local calls of its parts) is not
// described; misfit() says why.
NodeSemantics analyze(const graph::Program& program, const graph::Node& node, const Catalogue& catalogue);

// How a part of a node is computed: a call of an operator on regions.
struct LocalOperand {
  Region region;      // of the value, clipped: what must be there
  Region given;       // what the kernel is given: `region` with zeros around where it reaches further
  bool zero = false;  // zeros of that shape are given instead; nothing must be there
};
struct LocalResult {
  Region region;  // of the value: this part's
  // What the kernel's result covers, in the value's coordinates; contains `region`. Where the description gives only
  // its beginning, it may go on past the end that stands here: crop by beginning and size of `region`.
  Region produced;
  // How this part is combined with the others of the same `region`; kConcatenate when there are none.
  Outcome outcome = Outcome::kConcatenate;
  // Another part, earlier in a variable that is replicated for this result, makes the same: when parts are reduced,
  // this one is left out.
  bool repeated = false;
};
struct LocalCall {
  bool empty = false;  // nothing to compute: an interval of the box is empty
  // Results as the node's when it is the node's operator; another one makes those that exist, in their order.
  std::string op;
  // As of a node; ValueRefs name the whole values: where the call takes a tensor it is operands[] in the order of
  // values_read over these arguments, which may repeat, leave out or reorder the node's operands.
  std::vector<graph::Argument> args;
  std::vector<std::size_t> argument_operands;  // for each value that `args` reads: which operand of the node it is
  std::vector<LocalOperand> operands;          // by operand of the node
  std::vector<LocalResult> results;            // by result of the node; region and produced empty where there is none
};

// `box` must lie in semantics.whole_box() (which stands for a node without description, too). kInvalidInput saying why
// where the description's local call does not fit this part, which analyze() has tried for some of each cut.
Result<LocalCall> localize(const graph::Program& program, const graph::Node& node, const NodeSemantics& semantics,
                           const Catalogue& catalogue, const Box& box);

}  // namespace tesser::tdl
