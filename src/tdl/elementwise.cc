// Operators whose element i of every result needs element i of the arguments alone.

#include "tdl/affine.h"
#include "tdl/analysis.h"

namespace tesser::tdl {

void Analysis::elementwise() {
  const Shape* shape = nullptr;
  for (std::size_t r = 0; r < node_.outputs.size(); ++r) {
    if (!state_->result_exists[r]) {
      continue;
    }
    if (shape != nullptr && state_->result_shapes[r] != *shape) {
      binding_.fail("results of shapes " + shape_text(*shape) + " and " + shape_text(state_->result_shapes[r]) +
                    " of an elementwise operator");
      return;
    }
    shape = &state_->result_shapes[r];
  }
  if (shape == nullptr) {
    return;
  }
  AccessIndex index;
  for (std::size_t d = 0; d < shape->size(); ++d) {
    state_->variables.push_back({"i." + std::to_string(d), (*shape)[d], false});
    index.push_back(affine_variable(static_cast<int>(d)));
  }
  for (std::size_t o = 0; o < state_->operands.size(); ++o) {
    const Shape& operand = state_->operand_shapes[o];
    if (operand.size() > shape->size()) {
      binding_.fail("an argument of shape " + shape_text(operand) + " and a result of shape " + shape_text(*shape) +
                    " of an elementwise operator");
      return;
    }
    const std::size_t skipped = shape->size() - operand.size();
    AccessIndex access(index.begin() + static_cast<std::ptrdiff_t>(skipped), index.end());
    for (std::size_t d = 0; d < operand.size(); ++d) {
      if (operand[d] != (*shape)[skipped + d]) {
        if (operand[d] != 1) {
          binding_.fail("an argument of shape " + shape_text(operand) + " and a result of shape " + shape_text(*shape) +
                        " of an elementwise operator");
          return;
        }
        access[d] = affine_constant(0);
      }
    }
    state_->operands[o].accesses.push_back(std::move(access));
    state_->operands[o].zero_variables.emplace_back();
  }
  for (std::size_t r = 0; r < node_.outputs.size(); ++r) {
    if (state_->result_exists[r]) {
      state_->results[r] = index;
    }
  }
  for (std::size_t d = 0; d < shape->size(); ++d) {
    if ((*shape)[d] > 1) {
      Strategy strategy{static_cast<int>(d), std::vector<Outcome>(node_.outputs.size(), Outcome::kReplicated)};
      for (std::size_t r = 0; r < node_.outputs.size(); ++r) {
        if (state_->result_exists[r]) {
          strategy.outcomes[r] = Outcome::kConcatenate;
        }
      }
      state_->strategies.push_back(std::move(strategy));
    }
  }
}

}  // namespace tesser::tdl
