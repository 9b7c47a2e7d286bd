// Which variables of an analysed node may be cut.

#include <algorithm>

#include "tdl/analysis.h"

namespace tesser::tdl {

// Whether cutting the variable cuts the form into intervals that do not overlap: every other variable of it runs inside
// one step of this one.
bool Analysis::outermost(const AffineIndex& form, int variable) const {
  std::int64_t step = 0;
  std::int64_t inside = 1;
  for (const auto& [other, coefficient] : form.coefficients) {
    if (other == variable) {
      step = std::abs(coefficient);
    } else if (extent(other) > 1) {
      inside += std::abs(coefficient) * (extent(other) - 1);
    }
  }
  return form.divisor == 1 && inside <= step;
}

// Whether every index that has the variable reads an interval that a part of the same operator can take: not where the
// variable counts inside steps of another one (channels inside groups), which would leave gaps.
bool Analysis::splits_reads(int variable) const {
  for (const OperandUse& use : state_->operands) {
    for (const AccessIndex& index : use.accesses) {
      for (const AffineIndex& form : index) {
        std::int64_t step = 0;
        for (const auto& [other, coefficient] : form.coefficients) {
          step = other == variable ? std::abs(coefficient) : step;
        }
        for (const auto& [other, coefficient] : form.coefficients) {
          if (step != 0 && other != variable && extent(other) > 1 && std::abs(coefficient) == step * extent(variable)) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

std::optional<Outcome> Analysis::outcome(const Active& active, int variable, std::size_t result) const {
  int dimensions = 0;
  for (const AffineIndex& form : state_->results[result]) {
    const bool has = std::any_of(form.coefficients.begin(), form.coefficients.end(),
                                 [&](const auto& entry) { return entry.first == variable; });
    if (has) {
      ++dimensions;
      if (!outermost(form, variable)) {
        return std::nullopt;
      }
    }
  }
  if (dimensions > 0) {
    return dimensions == 1 ? std::optional(Outcome::kConcatenate) : std::nullopt;
  }
  if (std::find(active.buried.begin(), active.buried.end(), variable) != active.buried.end()) {
    return std::nullopt;
  }
  std::optional<Outcome> reduced;
  bool outside = false;
  for (std::size_t t = 0; t < active.terms.size(); ++t) {
    const Term& term = *active.terms[t];
    if (std::find(active.bound[t].begin(), active.bound[t].end(), variable) == active.bound[t].end()) {
      outside = true;
      continue;
    }
    reduced = reduction_from_name(term.reduction);
  }
  if (!reduced) {
    return Outcome::kReplicated;
  }
  if (!outside) {
    return reduced;
  }
  if (reduced != Outcome::kSum) {
    return std::nullopt;
  }
  // Every term outside vanishes where an argument is zero that is read nowhere but outside.
  for (std::size_t t = 0; t < active.terms.size(); ++t) {
    if (std::find(active.bound[t].begin(), active.bound[t].end(), variable) != active.bound[t].end()) {
      continue;
    }
    const bool vanishes =
        std::any_of(active.terms[t]->accesses.begin(), active.terms[t]->accesses.end(), [&](const Expression* access) {
          const std::vector<TensorUse> uses = binding_.tensors_of_parameter(access->id);
          return std::all_of(uses.begin(), uses.end(), [&](const TensorUse& use) {
            const auto& places = state_->operands[static_cast<std::size_t>(use.operand)].zero_variables;
            return std::all_of(places.begin(), places.end(), [&](const std::vector<int>& zero) {
              return std::find(zero.begin(), zero.end(), variable) != zero.end();
            });
          });
        });
    if (!vanishes) {
      return std::nullopt;
    }
  }
  return reduced;
}

void Analysis::find_strategies() {
  for (std::size_t v = 0; v < state_->variables.size(); ++v) {
    const int variable = static_cast<int>(v);
    if (state_->variables[v].whole || state_->variables[v].extent < 2 || !splits_reads(variable)) {
      continue;
    }
    Strategy strategy;
    strategy.variable = variable;
    strategy.outcomes.assign(node_.outputs.size(), Outcome::kReplicated);
    bool possible = true;
    bool useful = false;
    for (const Active& active : active_) {
      for (const TensorUse& use : active.results) {
        const auto r = static_cast<std::size_t>(use.result);
        const std::optional<Outcome> found = outcome(active, variable, r);
        possible = possible && found.has_value();
        strategy.outcomes[r] = found.value_or(Outcome::kReplicated);
        useful = useful || strategy.outcomes[r] != Outcome::kReplicated;
      }
    }
    if (possible && useful) {
      state_->strategies.push_back(std::move(strategy));
    }
  }
}
}  // namespace tesser::tdl
