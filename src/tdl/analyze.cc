// From a description and a node to the node's semantics.

#include <algorithm>

#include "tdl/affine.h"
#include "tdl/analysis.h"

namespace tesser::tdl {

bool Analysis::choose_equations() {
  std::vector<bool> has_equation(node_.outputs.size(), false);
  std::vector<bool> chosen(description_.results.size(), false);
  for (const Equation& equation : description_.equations) {
    const auto r = static_cast<std::size_t>(equation.result);
    if (chosen[r] || (equation.condition && !binding_.holds(*equation.condition))) {
      continue;
    }
    chosen[r] = true;
    Active active;
    active.equation = &equation;
    active.results = binding_.tensors_of_result(equation.result);
    for (const TensorUse& use : active.results) {
      has_equation[static_cast<std::size_t>(use.result)] = true;
    }
    for (const Term& term : equation.terms) {
      const bool given = std::all_of(term.accesses.begin(), term.accesses.end(), [&](const Expression* access) {
        return !binding_.tensors_of_parameter(access->id).empty();
      });
      if (given || equation.terms.size() == 1) {
        active.terms.push_back(&term);
      }
    }
    (active.results.empty() ? absent_ : active_).push_back(std::move(active));
  }
  for (std::size_t r = 0; r < node_.outputs.size(); ++r) {
    if (node_.outputs[r] != graph::kNone && !has_equation[r]) {
      return false;
    }
  }
  return true;
}

// Proposes lengths for packs that an index with `rank` dimensions alone decides; false when there is nothing to learn.
bool Analysis::infer_from(const Expression* access, const std::vector<Expression>& indices, std::int64_t rank,
                          std::vector<std::int64_t>& proposals) {
  std::int64_t known = 0;
  int unknown = -1;
  std::int64_t times = 0;
  for (const Expression& index : indices) {
    const Binding::Length length = binding_.length_of(index);
    known += length.constant;
    if (length.pack >= 0) {
      if (unknown >= 0 && unknown != length.pack) {
        return false;
      }
      unknown = length.pack;
      ++times;
    }
  }
  if (unknown < 0 || binding_.failed()) {
    return false;
  }
  if ((rank - known) % times != 0 || rank < known) {
    binding_.fail("'" + (access != nullptr ? access->name : "the result") + "' has " + std::to_string(rank) +
                  " dimensions, fewer than its index");
    return false;
  }
  std::int64_t& proposal = proposals[static_cast<std::size_t>(unknown)];
  proposal = std::max(proposal, (rank - known) / times);
  return true;
}

void Analysis::infer_lengths() {
  for (const Extent& extent : description_.extents) {
    if (extent.variable.pack && !binding_.failed()) {
      bool is_list = false;
      const std::size_t size = binding_.index_forms(extent.value, &is_list).size();
      if (is_list) {
        binding_.set_length(extent.variable.id, static_cast<std::int64_t>(size));
      }
    }
  }
  bool learned = true;
  const auto accept = [&](const std::vector<std::int64_t>& proposals) {
    for (std::size_t v = 0; v < proposals.size(); ++v) {
      if (proposals[v] >= 0 && binding_.length(static_cast<int>(v)) < 0) {
        binding_.set_length(static_cast<int>(v), proposals[v]);
        learned = true;
      }
    }
  };
  while (learned && !binding_.failed()) {
    learned = false;
    for (const Active& active : active_) {
      std::vector<std::int64_t> proposals(description_.variables.size(), -1);
      const auto rank = static_cast<std::int64_t>(binding_.shape_of(active.results.front()).size());
      if (infer_from(nullptr, active.equation->index, rank, proposals)) {
        accept(proposals);
      }
    }
    if (learned) {
      continue;
    }
    // Of several arguments the one of highest rank decides: the others are broadcast.
    std::vector<std::int64_t> proposals(description_.variables.size(), -1);
    for (const std::vector<Active>* const equations : {&active_, &absent_}) {
      for (const Active& active : *equations) {
        for (const Term* const term : active.terms) {
          for (const Expression* const access : term->accesses) {
            for (const TensorUse& use : binding_.tensors_of_parameter(access->id)) {
              binding_.set_current(&use);
              infer_from(access, access->children, static_cast<std::int64_t>(binding_.shape_of(use).size()), proposals);
            }
          }
        }
      }
    }
    binding_.set_current(nullptr);
    accept(proposals);
  }
}

void Analysis::set_extent(int variable, std::int64_t extent, Source source, const std::string& name) {
  const auto v = static_cast<std::size_t>(variable);
  sources_.resize(std::max(sources_.size(), binding_.variables().size()), Source::kNone);
  Variable& known = binding_.variables()[v];
  if (sources_[v] == Source::kNone || (sources_[v] == Source::kSizeOne && source >= Source::kArgument)) {
    known.extent = extent;
    sources_[v] = source;
    return;
  }
  const bool fits = source == Source::kSizeOne || extent == known.extent ||
                    (source == Source::kArgument && sources_[v] > Source::kArgument && extent > known.extent);
  if (!fits) {
    binding_.fail("variable " + known.name + " has extent " + std::to_string(known.extent) + ", and '" + name +
                  "' has " + std::to_string(extent) + " there");
  }
}

void Analysis::bind_variables() {
  std::vector<bool> used(description_.variables.size(), false);
  for (const Active& active : active_) {
    for (const int variable : active.equation->variables) {
      used[static_cast<std::size_t>(variable)] = true;
    }
  }
  for (std::size_t v = 0; v < used.size(); ++v) {
    if (used[v] && binding_.length(static_cast<int>(v)) < 0) {
      binding_.fail("how many dimensions pack " + description_.variables[v].name + "... stands for is not known");
    }
    if (used[v] && !binding_.failed()) {
      binding_.add_variables(static_cast<int>(v));
    }
  }
  for (const Extent& extent : description_.extents) {
    if (binding_.failed()) {
      return;
    }
    if (binding_.first_of(extent.variable.id) < 0) {
      continue;  // of an equation that does not hold
    }
    const std::vector<AffineIndex> forms = binding_.index_forms(extent.value);
    if (binding_.failed()) {
      return;
    }
    const int variable = extent.variable.id;
    const std::int64_t count = binding_.length(variable);
    const int first = binding_.first_of(variable);
    for (std::int64_t d = 0; d < count; ++d) {
      const std::size_t at = forms.size() == 1 ? 0 : static_cast<std::size_t>(d);
      if (at >= forms.size() || !forms[at].coefficients.empty() || forms[at].divisor != 1 || forms[at].constant < 0) {
        binding_.fail("the extent of " + extent.variable.name + " is no number from 0 on for each dimension");
        return;
      }
      set_extent(first + static_cast<int>(d), forms[at].constant, Source::kWhere, "where");
    }
  }
}

// A variable of a pack that with() replaces everywhere stands in no index: it has one value.
void Analysis::leave_out_unused() {
  std::vector<bool> used(state_->variables.size(), false);
  const auto use = [&](const AccessIndex& index) {
    for (const AffineIndex& form : index) {
      for (const auto& [variable, coefficient] : form.coefficients) {
        used[static_cast<std::size_t>(variable)] = true;
      }
    }
  };
  for (const OperandUse& operand : state_->operands) {
    std::for_each(operand.accesses.begin(), operand.accesses.end(), use);
  }
  std::for_each(state_->results.begin(), state_->results.end(), use);
  for (const Active& active : active_) {
    for (const std::vector<int>& bound : active.bound) {
      for (const int variable : bound) {
        used[static_cast<std::size_t>(variable)] = true;
      }
    }
  }
  for (std::size_t v = 0; v < used.size(); ++v) {
    if (!used[v] && state_->variables[v].extent < 0) {
      state_->variables[v].extent = 1;
    }
  }
}

// Regions are computed without a look at overflow; here is the only place where it could arise.
void Analysis::check_overflow() {
  const auto check = [&](const AccessIndex& index) {
    for (const AffineIndex& form : index) {
      long double reach = std::abs(static_cast<long double>(form.constant)) + static_cast<long double>(form.divisor);
      for (const auto& [variable, coefficient] : form.coefficients) {
        reach += std::abs(static_cast<long double>(coefficient)) * static_cast<long double>(extent(variable));
      }
      if (reach > 1e18L) {
        binding_.fail("an index overflows");
      }
    }
  };
  for (const OperandUse& use : state_->operands) {
    std::for_each(use.accesses.begin(), use.accesses.end(), check);
  }
  std::for_each(state_->results.begin(), state_->results.end(), check);
}

// An operand that no equation reads and that every local call that may be meant leaves out, because it says a shape and
// nothing else, is not needed.
void Analysis::find_needed() {
  const auto asks_for_part = [](const auto& self, const Expression& expression) -> bool {
    const bool local = expression.kind == Expression::Kind::kCall &&
                       static_cast<Function>(expression.id) >= Function::kLocalShape &&
                       static_cast<Function>(expression.id) <= Function::kPadded;
    return local || std::any_of(expression.children.begin(), expression.children.end(),
                                [&](const Expression& child) { return self(self, child); });
  };
  std::vector<const LocalClause*> possible;  // conditions that ask for a part are not decided before there is one
  bool one_holds = false;
  for (const LocalClause& clause : description_.locals) {
    const bool decided = !clause.condition || !asks_for_part(asks_for_part, *clause.condition);
    one_holds = decided && (!clause.condition || binding_.holds(*clause.condition));
    if (one_holds || !decided) {
      possible.push_back(&clause);
    }
    if (one_holds) {
      break;
    }
  }
  if (!one_holds || binding_.failed()) {  // then it may be the operator's own call, with everything
    return;
  }
  for (std::size_t p = 0; p < description_.parameters.size(); ++p) {
    const auto names = [p](const Expression& argument) {
      const bool call = argument.kind == Expression::Kind::kCall && !argument.children.empty();
      const Expression& named = call ? argument.children.front() : argument;
      return (named.kind == Expression::Kind::kAttribute || named.kind == Expression::Kind::kTensor) &&
             named.id == static_cast<int>(p);
    };
    if (std::any_of(possible.begin(), possible.end(), [&](const LocalClause* clause) {
          return std::any_of(clause->arguments.begin(), clause->arguments.end(), names);
        })) {
      continue;
    }
    for (const TensorUse& use : binding_.tensors_of_parameter(static_cast<int>(p))) {
      OperandUse& operand = state_->operands[static_cast<std::size_t>(use.operand)];
      operand.needed = !operand.accesses.empty();
    }
  }
}

// Equal accesses of an operand count once, and every dimension with one form gets it for tables and alignment.
void Analysis::finish() {
  for (std::size_t o = 0; o < state_->operands.size(); ++o) {
    std::vector<AccessIndex>& accesses = state_->operands[o].accesses;
    const auto same_index = [](const AccessIndex& a, const AccessIndex& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
    };
    for (std::size_t a = 0; a < accesses.size(); ++a) {
      for (std::size_t b = accesses.size() - 1; b > a; --b) {
        if (same_index(accesses[a], accesses[b])) {
          accesses.erase(accesses.begin() + static_cast<std::ptrdiff_t>(b));
        }
      }
    }
    for (std::size_t d = 0; d < state_->operand_indices[o].size() && !accesses.empty(); ++d) {
      const bool one = std::all_of(accesses.begin(), accesses.end(),
                                   [&](const AccessIndex& index) { return same(index[d], accesses.front()[d]); });
      if (one) {
        state_->operand_indices[o][d] = accesses.front()[d];
      }
    }
  }
  for (std::size_t r = 0; r < state_->results.size(); ++r) {
    for (std::size_t d = 0; d < state_->results[r].size(); ++d) {
      state_->result_indices[r][d] = state_->results[r][d];
    }
  }
}

bool Analysis::run(NodeState& state) {
  state_ = &state;
  if (binding_.failed()) {
    return true;
  }
  if (description_.elementwise) {
    elementwise();
  } else {
    if (!choose_equations()) {
      return binding_.failed();
    }
    infer_lengths();
    bind_variables();
    if (!binding_.failed()) {
      read_tensors();
    }
    if (binding_.failed()) {
      return true;
    }
    state.variables = std::move(binding_.variables());
    leave_out_unused();
    for (const Variable& variable : state.variables) {
      if (variable.extent < 0) {
        binding_.fail("the extent of variable " + variable.name +
                      " is not known: let it index a dimension alone, or give it in 'where'");
        return true;
      }
    }
    find_strategies();
    state.first_variable.reserve(description_.variables.size());
    state.pack_lengths.reserve(description_.variables.size());
    for (std::size_t v = 0; v < description_.variables.size(); ++v) {
      state.first_variable.push_back(binding_.first_of(static_cast<int>(v)));
      state.pack_lengths.push_back(binding_.length(static_cast<int>(v)));
    }
    check_overflow();
    find_needed();
  }
  finish();
  state.described = true;
  return true;
}

namespace {

// Why a part cannot be called as the description says. Parts differ in little but their size, so that few of each cut
// are tried: halves, and one element at either end.
std::optional<std::string> local_defect(const graph::Program& program, const graph::Node& node,
                                        const NodeSemantics& semantics, const Catalogue& catalogue) {
  std::vector<Box> boxes = {semantics.whole_box()};
  for (const Strategy& strategy : semantics.strategies()) {
    const auto v = static_cast<std::size_t>(strategy.variable);
    const std::int64_t extent = semantics.variables()[v].extent;
    for (const Interval& interval :
         {Interval{0, 1}, Interval{0, extent / 2}, Interval{extent / 2, extent}, Interval{extent - 1, extent}}) {
      boxes.push_back(semantics.whole_box());
      boxes.back()[v] = interval;
    }
  }
  for (const Box& box : boxes) {
    if (const Result<LocalCall> call = localize(program, node, semantics, catalogue, box); !call) {
      return call.error().message;
    }
  }
  return std::nullopt;
}

}  // namespace

NodeSemantics analyze(const graph::Program& program, const graph::Node& node, const Catalogue& catalogue) {
  const auto make_state = [&] {
    auto state = std::make_shared<NodeState>();
    for (const graph::ValueId id : graph::values_read(node)) {
      state->operand_shapes.push_back(program.value(id).shape);
      state->operand_indices.emplace_back(state->operand_shapes.back().size());
    }
    for (const graph::ValueId id : node.outputs) {
      state->result_exists.push_back(id != graph::kNone);
      state->result_shapes.push_back(id == graph::kNone ? Shape{} : program.value(id).shape);
      state->result_indices.emplace_back(state->result_shapes.back().size());
    }
    state->operands.resize(state->operand_shapes.size());
    state->results.resize(node.outputs.size());
    return state;
  };
  const std::shared_ptr<NodeState> state = make_state();
  const Description* const description = catalogue.find(node.op);
  if (description == nullptr) {
    return SemanticsBuilder::wrap(state);
  }
  Analysis analysis(program, node, *description);
  const bool described = analysis.run(*state);
  std::optional<std::string> misfit = analysis.error();
  if (!misfit && !described) {
    misfit = "no equation of a result holds for such a call";
  }
  if (!misfit) {
    NodeSemantics semantics = SemanticsBuilder::wrap(state);
    misfit = local_defect(program, node, semantics, catalogue);
    if (!misfit) {
      return semantics;
    }
  }
  const std::shared_ptr<NodeState> undescribed = make_state();
  undescribed->misfit = *misfit + "; described in " + description->where();
  return SemanticsBuilder::wrap(undescribed);
}

}  // namespace tesser::tdl
