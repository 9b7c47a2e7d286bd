#include "tdl/semantics.h"

#include <algorithm>

#include "base/check.h"
#include "tdl/affine.h"
#include "tdl/semantics_state.h"

namespace tesser::tdl {
namespace {

Region region_of(const AccessIndex& index, const Box& box) {
  Region region;
  region.reserve(index.size());
  for (const AffineIndex& form : index) {
    region.push_back(interval_of(form, box));
  }
  return region;
}

bool has_empty_interval(const Region& region) {
  return std::any_of(region.begin(), region.end(), [](const Interval& interval) { return interval.empty(); });
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kConcatenate:
      return "concatenate";
    case Outcome::kSum:
      return "sum";
    case Outcome::kMax:
      return "max";
    case Outcome::kMin:
      return "min";
    case Outcome::kProduct:
      return "prod";
    case Outcome::kReplicated:
      return "replicated";
  }
  return "?";
}

std::optional<Outcome> reduction_from_name(std::string_view name) {
  for (const Outcome outcome : {Outcome::kSum, Outcome::kMax, Outcome::kMin, Outcome::kProduct}) {
    if (name == outcome_name(outcome)) {
      return outcome;
    }
  }
  return std::nullopt;
}

bool NodeSemantics::described() const { return state_->described; }
const std::string& NodeSemantics::misfit() const { return state_->misfit; }
const std::vector<Variable>& NodeSemantics::variables() const { return state_->variables; }
const std::vector<Strategy>& NodeSemantics::strategies() const { return state_->strategies; }

Box NodeSemantics::whole_box() const {
  Box box;
  box.reserve(state_->variables.size());
  for (const Variable& variable : state_->variables) {
    box.push_back({0, variable.extent});
  }
  return box;
}

bool NodeSemantics::is_empty(const Box& box) const {
  for (std::size_t v = 0; v < state_->variables.size(); ++v) {
    if (box[v].empty() && state_->variables[v].extent > 0) {
      return true;
    }
  }
  return false;
}

Region NodeSemantics::operand_region(std::size_t operand, const Box& box) const {
  TESSER_CHECK(box.size() == state_->variables.size(), std::to_string(box.size()) + " intervals");
  const Shape& shape = state_->operand_shapes[operand];
  if (is_empty(box)) {
    return Region(shape.size());
  }
  const OperandUse& use = state_->operands[operand];
  if (use.accesses.empty()) {
    return use.needed ? whole(shape) : Region(shape.size());
  }
  Region hull = region_of(use.accesses.front(), box);
  for (std::size_t a = 1; a < use.accesses.size(); ++a) {
    const Region region = region_of(use.accesses[a], box);
    if (has_empty_interval(region)) {
      continue;
    }
    if (has_empty_interval(hull)) {
      hull = region;
      continue;
    }
    for (std::size_t d = 0; d < hull.size(); ++d) {
      hull[d] = {std::min(hull[d].begin, region[d].begin), std::max(hull[d].end, region[d].end)};
    }
  }
  return hull;
}

Region NodeSemantics::result_region(std::size_t result, const Box& box) const {
  TESSER_CHECK(box.size() == state_->variables.size(), std::to_string(box.size()) + " intervals");
  const Shape& shape = state_->result_shapes[result];
  if (is_empty(box)) {
    return Region(shape.size());
  }
  if (!state_->described) {
    return whole(shape);
  }
  return intersection(region_of(state_->results[result], box), whole(shape));
}

bool NodeSemantics::operand_is_zero(std::size_t operand, const Box& box) const {
  const OperandUse& use = state_->operands[operand];
  const auto zero = [&](const std::vector<int>& variables) {
    return std::any_of(variables.begin(), variables.end(),
                       [&](int variable) { return box[static_cast<std::size_t>(variable)].begin > 0; });
  };
  return !use.zero_variables.empty() && std::all_of(use.zero_variables.begin(), use.zero_variables.end(), zero);
}

const std::vector<std::optional<AffineIndex>>& NodeSemantics::operand_index(std::size_t operand) const {
  return state_->operand_indices[operand];
}

const std::vector<std::optional<AffineIndex>>& NodeSemantics::result_index(std::size_t result) const {
  return state_->result_indices[result];
}

}  // namespace tesser::tdl
