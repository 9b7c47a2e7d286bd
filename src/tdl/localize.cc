#include <algorithm>

#include "base/check.h"
#include "tdl/affine.h"
#include "tdl/binding.h"
#include "tdl/semantics_state.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;
using State = SemanticsBuilder::State;

// How the parts of a result that differ in variables which its region does not show are combined.
void set_outcome(const State& state, std::size_t result, const Box& box, LocalResult& local) {
  bool reduced = false;
  bool replicated = false;
  for (const Strategy& strategy : state.strategies) {
    const auto v = static_cast<std::size_t>(strategy.variable);
    if (box[v] == Interval{0, state.variables[v].extent}) {
      continue;
    }
    const Outcome outcome = strategy.outcomes[result];
    if (outcome == Outcome::kReplicated) {
      replicated = true;
      local.repeated = local.repeated || box[v].begin > 0;
    } else if (outcome != Outcome::kConcatenate) {
      reduced = true;
      local.outcome = outcome;
    }
  }
  if (!reduced && replicated) {
    local.outcome = Outcome::kReplicated;
  }
}

// Evaluates the clause for a part.
class LocalBuilder {
 public:
  LocalBuilder(Binding& binding, const NodeSemantics& semantics, const Box& box, LocalCall& call)
      : binding_(binding), semantics_(semantics), box_(box), call_(call) {}

  void build(const LocalClause& clause);

 private:
  graph::Argument argument(const Expression& expression);
  graph::Argument attribute(const Evaluated& value, const Expression& expression);
  void add_operands(const graph::Argument& argument, int parameter);
  void set_origin(const Origin& origin);

  Binding& binding_;
  const NodeSemantics& semantics_;
  const Box& box_;
  LocalCall& call_;
};

void LocalBuilder::add_operands(const graph::Argument& argument, int parameter) {
  const bool tensors = std::holds_alternative<graph::ValueRef>(argument) ||
                       std::holds_alternative<std::vector<graph::ValueRef>>(argument);
  if (tensors) {
    for (const TensorUse& use : binding_.tensors_of_parameter(parameter)) {
      call_.argument_operands.push_back(static_cast<std::size_t>(use.operand));
    }
  }
}

graph::Argument LocalBuilder::attribute(const Evaluated& value, const Expression& expression) {
  if (!value.is_index) {
    return value.attribute;
  }
  std::vector<std::int64_t> list;
  for (const AffineIndex& form : value.forms) {
    if (!form.coefficients.empty()) {
      binding_.fail("'" + expression.name + "' depends on a variable");
    }
    list.push_back(form.constant);
  }
  if (value.is_list) {
    return list;
  }
  return list.empty() ? graph::Argument(graph::None{}) : graph::Argument(list.front());
}

graph::Argument LocalBuilder::argument(const Expression& expression) {
  const bool padded = expression.kind == Kind::kCall && static_cast<Function>(expression.id) == Function::kPadded;
  const Expression& named = padded ? expression.children.front() : expression;
  if (named.kind == Kind::kAttribute || named.kind == Kind::kTensor) {
    const graph::Argument* const given = binding_.argument(named.id);
    if (given == nullptr) {
      return graph::None{};
    }
    add_operands(*given, named.id);
    return *given;
  }
  if (expression.kind == Kind::kList) {
    // Truth values, as output masks hold them, or integers.
    std::vector<bool> truths;
    for (const Expression& child : expression.children) {
      const Evaluated value = binding_.evaluate(child);
      if (const auto* truth = std::get_if<bool>(&value.attribute); truth != nullptr && !value.is_index) {
        truths.push_back(*truth);
      }
    }
    if (!truths.empty()) {
      if (truths.size() != expression.children.size()) {
        binding_.fail("a list of the local call holds truth values and others");
      }
      return truths;
    }
  }
  return attribute(binding_.evaluate(expression), expression);
}

void LocalBuilder::set_origin(const Origin& origin) {
  const std::vector<TensorUse> uses = binding_.tensors_of_result(origin.result);
  if (uses.empty()) {
    return;
  }
  LocalResult& local = call_.results[static_cast<std::size_t>(uses.front().result)];
  Region produced;
  for (std::size_t i = 0; i < origin.begins.size(); ++i) {
    const std::vector<AffineIndex> begins = binding_.index_forms(origin.begins[i]);
    const std::vector<AffineIndex> ends =
        origin.ends[i] ? binding_.index_forms(*origin.ends[i]) : std::vector<AffineIndex>();
    if (!binding_.failed() && origin.ends[i] && ends.size() != begins.size()) {
      binding_.fail("'from' gives " + std::to_string(begins.size()) + " begins and " + std::to_string(ends.size()) +
                    " ends");
    }
    for (std::size_t d = 0; d < begins.size() && !binding_.failed(); ++d) {
      const std::size_t dimension = produced.size();
      const std::int64_t end = origin.ends[i]                    ? ends[d].constant
                               : dimension < local.region.size() ? local.region[dimension].end
                                                                 : 0;
      produced.push_back({begins[d].constant, end});
    }
  }
  if (binding_.failed()) {
    return;
  }
  if (produced.size() != local.region.size()) {
    binding_.fail("'from' gives " + std::to_string(produced.size()) + " places for " +
                  std::to_string(local.region.size()) + " dimensions");
    return;
  }
  if (!contains(produced, local.region)) {
    binding_.fail("'from' says that the call makes " + region_text(produced) + ", but the part is " +
                  region_text(local.region));
    return;
  }
  local.produced = std::move(produced);
}

void LocalBuilder::build(const LocalClause& clause) {
  // padded() decides what the kernel is given, which other expressions ask about: it comes first.
  for (const Expression& expression : clause.arguments) {
    if (expression.kind == Kind::kCall && static_cast<Function>(expression.id) == Function::kPadded) {
      for (const TensorUse& use : binding_.tensors_of_parameter(expression.children.front().id)) {
        const auto operand = static_cast<std::size_t>(use.operand);
        call_.operands[operand].given = semantics_.operand_region(operand, box_);
      }
    }
  }
  call_.op = clause.op;
  call_.args.clear();
  call_.argument_operands.clear();
  for (const Expression& expression : clause.arguments) {
    call_.args.push_back(argument(expression));
  }
  for (const Origin& origin : clause.origins) {
    set_origin(origin);
  }
}

}  // namespace

Result<LocalCall> localize(const graph::Program& program, const graph::Node& node, const NodeSemantics& semantics,
                           const Catalogue& catalogue, const Box& box) {
  const State& state = SemanticsBuilder::state(semantics);
  TESSER_CHECK(box.size() == state.variables.size(), std::to_string(box.size()) + " intervals for node " + node.name);
  LocalCall call;
  call.op = node.op;
  call.args = node.args;
  for (std::size_t v = 0; v < box.size(); ++v) {
    const Interval everything{0, state.variables[v].extent};
    TESSER_CHECK(contains({everything}, {box[v]}), "interval of " + state.variables[v].name + " of node " + node.name +
                                                       ": " + region_text({box[v]}) + " of " +
                                                       region_text({everything}));
  }
  call.empty = semantics.is_empty(box);
  call.operands.resize(state.operand_shapes.size());
  for (std::size_t o = 0; o < call.operands.size(); ++o) {
    LocalOperand& operand = call.operands[o];
    operand.region = intersection(semantics.operand_region(o, box), whole(state.operand_shapes[o]));
    operand.given = operand.region;
    operand.zero = semantics.operand_is_zero(o, box);
    call.argument_operands.push_back(o);
  }
  call.results.resize(state.result_shapes.size());
  for (std::size_t r = 0; r < call.results.size(); ++r) {
    LocalResult& result = call.results[r];
    if (state.result_exists[r]) {
      result.region = semantics.result_region(r, box);
      result.produced = result.region;
      set_outcome(state, r, box, result);
    }
  }
  const Description* const description = state.described ? catalogue.find(node.op) : nullptr;
  if (call.empty || description == nullptr || description->locals.empty()) {
    return call;
  }
  Binding binding(program, node, *description);
  binding.adopt(state.variables, state.first_variable, state.pack_lengths);
  const LocalPart part{&box, &call};
  binding.set_part(&part);
  for (const LocalClause& clause : description->locals) {
    if (clause.condition && !binding.holds(*clause.condition)) {
      if (binding.failed()) {
        break;
      }
      continue;
    }
    LocalBuilder(binding, semantics, box, call).build(clause);
    break;
  }
  if (binding.failed()) {
    return invalid_input("the local call of a part: " + *binding.error());
  }
  return call;
}

}  // namespace tesser::tdl
