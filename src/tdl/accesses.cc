// What the accesses of a node's equations mean: an affine form for each dimension of each tensor.

#include <algorithm>

#include "tdl/affine.h"
#include "tdl/analysis.h"
#include "tdl/views.h"

namespace tesser::tdl {

// The index of one tensor of a list (of one, mostly), a form for each of its dimensions; where a variable alone indexes
// a dimension, that says its extent.
AccessIndex Analysis::index_of(const std::vector<Expression>& indices, const TensorUse& use,
                               const std::vector<TensorUse>& list, const std::string& name) {
  const Shape& shape = binding_.shape_of(use);
  binding_.set_current(&use);
  AccessIndex index;
  std::size_t pack_begin = 0;
  std::size_t pack_size = 0;
  bool pack_seen = false;
  for (const Expression& expression : indices) {
    bool is_list = false;
    std::vector<AffineIndex> forms = binding_.index_forms(expression, &is_list);
    if (is_list && !pack_seen) {
      pack_seen = true;
      pack_begin = index.size();
      pack_size = forms.size();
    }
    for (AffineIndex& form : forms) {
      index.push_back(std::move(form));
    }
  }
  binding_.set_current(nullptr);
  if (binding_.failed()) {
    return index;
  }
  const std::size_t surplus = index.size() - std::min(index.size(), shape.size());
  if (index.size() < shape.size() || surplus > pack_size || (surplus > 0 && use.operand < 0)) {
    binding_.fail("'" + name + "' has " + std::to_string(shape.size()) + " dimensions, its index " +
                  std::to_string(index.size()));
    return index;
  }
  const auto first = index.begin() + static_cast<std::ptrdiff_t>(pack_begin);
  index.erase(first, first + static_cast<std::ptrdiff_t>(surplus));
  for (std::size_t d = 0; d < index.size(); ++d) {
    AffineIndex& form = index[d];
    const int variable = lone_variable(form);
    if (variable >= 0) {
      const bool result = use.operand < 0;
      set_extent(variable, shape[d],
                 result          ? Source::kResult
                 : shape[d] == 1 ? Source::kSizeOne
                                 : Source::kArgument,
                 name);
      if (!result && shape[d] == 1) {
        form = affine_constant(0);
      }
      continue;
    }
    for (std::size_t c = 0; c < form.coefficients.size(); ++c) {
      if (form.coefficients[c].first == kOffsetVariable) {
        const std::int64_t times = form.coefficients[c].second;
        form.coefficients.erase(form.coefficients.begin() + static_cast<std::ptrdiff_t>(c));
        std::int64_t offset = 0;
        for (const TensorUse& before : list) {
          if (before.element >= use.element) {
            break;
          }
          const Shape& sizes = binding_.shape_of(before);
          if (d >= sizes.size()) {
            binding_.fail("the tensors of '" + name + "' have different ranks");
            return index;
          }
          offset += sizes[d];
        }
        form = affine_combined(Operation::kAdd, form, affine_constant(times * offset), binding_);
        break;
      }
    }
  }
  return index;
}

void Analysis::add_reshape(const Active& active) {
  const std::vector<TensorUse> sources = binding_.tensors_of_parameter(active.equation->reshaped);
  if (sources.empty()) {
    binding_.fail("the tensor to reshape is not given");
    return;
  }
  const Shape& from = binding_.shape_of(sources.front());
  const Shape& to = binding_.shape_of(active.results.front());
  if (element_count(from) != element_count(to)) {
    binding_.fail(shape_text(from) + " and " + shape_text(to) + " have different numbers of elements");
    return;
  }
  View view = match_view(from, to, binding_.variables());
  sources_.resize(binding_.variables().size(), Source::kWhere);
  OperandUse& use = state_->operands[static_cast<std::size_t>(sources.front().operand)];
  use.accesses.push_back(std::move(view.from));
  use.zero_variables.emplace_back();
  state_->results[static_cast<std::size_t>(active.results.front().result)] = std::move(view.to);
}

void Analysis::read_tensors() {
  for (Active& active : active_) {
    const Equation& equation = *active.equation;
    if (equation.reshaped >= 0) {
      add_reshape(active);
      continue;
    }
    const std::string& name = description_.results[static_cast<std::size_t>(equation.result)].name;
    for (const TensorUse& use : active.results) {
      state_->results[static_cast<std::size_t>(use.result)] = index_of(equation.index, use, active.results, name);
      if (binding_.failed()) {
        return;
      }
    }
  }
  for (Active& active : active_) {
    const auto variables_of = [&](const std::vector<const Expression*>& expressions) {
      std::vector<int> variables;
      for (const Expression* const expression : expressions) {
        for (const AffineIndex& form : binding_.index_forms(*expression)) {
          if (const int variable = lone_variable(form); variable >= 0) {
            variables.push_back(variable);
          }
        }
      }
      return variables;
    };
    for (const Term* const term : active.terms) {
      active.bound.push_back(variables_of(term->bound));
    }
    active.buried = variables_of(active.equation->buried);
    for (std::size_t t = 0; t < active.terms.size() && !binding_.failed(); ++t) {
      std::vector<int> zero;
      for (std::size_t other = 0; other < active.terms.size(); ++other) {
        for (const int variable : active.bound[other]) {
          if (std::find(active.bound[t].begin(), active.bound[t].end(), variable) == active.bound[t].end()) {
            zero.push_back(variable);
          }
        }
      }
      for (const Expression* const access : active.terms[t]->accesses) {
        const std::vector<TensorUse> uses = binding_.tensors_of_parameter(access->id);
        for (const TensorUse& use : uses) {
          AccessIndex index = index_of(access->children, use, uses, access->name);
          if (binding_.failed()) {
            return;
          }
          OperandUse& operand = state_->operands[static_cast<std::size_t>(use.operand)];
          operand.zero_variables.push_back(zero);
          operand.accesses.push_back(std::move(index));
        }
      }
    }
  }
  read_for_absent_results();
}

// The kernel takes an argument that only a result needs which nobody asked for, too: the part that this result would
// have needed, so that it goes with the others.
void Analysis::read_for_absent_results() {
  std::vector<bool> read;
  read.reserve(state_->operands.size());
  for (const OperandUse& operand : state_->operands) {
    read.push_back(!operand.accesses.empty());
  }
  for (const Active& absent : absent_) {
    for (const Term* const term : absent.terms) {
      for (const Expression* const access : term->accesses) {
        const std::vector<TensorUse> uses = binding_.tensors_of_parameter(access->id);
        for (const TensorUse& use : uses) {
          const auto operand = static_cast<std::size_t>(use.operand);
          if (!read[operand] && !binding_.failed()) {
            state_->operands[operand].accesses.push_back(index_of(access->children, use, uses, access->name));
            state_->operands[operand].zero_variables.emplace_back();
          }
        }
      }
    }
  }
}

}  // namespace tesser::tdl
