#include "tdl/explain.h"

#include <algorithm>

#include "tdl/semantics.h"
#include "tdl/symbolic.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;

bool mentions(const Expression& expression, int variable) {
  return ((expression.kind == Kind::kVariable || expression.kind == Kind::kWhole) && expression.id == variable) ||
         std::any_of(expression.children.begin(), expression.children.end(),
                     [&](const Expression& child) { return mentions(child, variable); });
}

bool mentioned(const std::vector<const Expression*>& expressions, int variable) {
  return std::any_of(expressions.begin(), expressions.end(),
                     [&](const Expression* expression) { return mentions(*expression, variable); });
}

std::string region_of(const SymbolicIndex& symbolic, const std::vector<Expression>& indices) {
  std::string text = "[";
  for (std::size_t i = 0; i < indices.size(); ++i) {
    text += (i == 0 ? "" : ", ") + symbolic.interval(indices[i]);
  }
  return text + "]";
}

// One choice of equations.
class CaseExplainer {
 public:
  CaseExplainer(const Description& description, std::vector<const Equation*> equations)
      : description_(description), equations_(std::move(equations)) {}

  ExplainedCase explain();

 private:
  // How the parts of this equation's result are put together when the variable is cut; "" when it cannot be, with the
  // reason.
  std::string together(const Equation& equation, int variable, std::string& reason) const;
  bool vanishes(const Term& term, int variable) const;
  bool outside_only(int parameter, int variable) const;
  void explain_variable(int variable, ExplainedCase& result) const;
  std::string name(int variable) const {
    const VariableName& named = description_.variables[static_cast<std::size_t>(variable)];
    return named.name + (named.pack ? "..." : "");
  }

  const Description& description_;
  std::vector<const Equation*> equations_;
};

// Whether every access of the parameter lies outside reductions that bind the variable, in sums of which they are
// terms.
bool CaseExplainer::outside_only(int parameter, int variable) const {
  bool outside = false;
  for (const Equation* const equation : equations_) {
    const bool bound_here = std::any_of(equation->terms.begin(), equation->terms.end(),
                                        [&](const Term& term) { return mentioned(term.bound, variable); });
    for (const Term& term : equation->terms) {
      for (const Expression* const access : term.accesses) {
        if (access->id != parameter) {
          continue;
        }
        if (!bound_here || mentioned(term.bound, variable)) {
          return false;
        }
        outside = true;
      }
    }
  }
  return outside;
}

bool CaseExplainer::vanishes(const Term& term, int variable) const {
  return std::any_of(term.accesses.begin(), term.accesses.end(),
                     [&](const Expression* access) { return outside_only(access->id, variable); });
}

std::string CaseExplainer::together(const Equation& equation, int variable, std::string& reason) const {
  const std::string& result = description_.results[static_cast<std::size_t>(equation.result)].name;
  const auto places = std::count_if(equation.index.begin(), equation.index.end(),
                                    [&](const Expression& index) { return mentions(index, variable); });
  if (places > 0) {
    if (places > 1) {
      reason = "stands in several dimensions of " + result;
      return {};
    }
    return std::string(outcome_name(Outcome::kConcatenate));
  }
  if (mentioned(equation.buried, variable)) {
    reason = "reduced inside an expression of " + result;
    return {};
  }
  const Term* reducing = nullptr;
  for (const Term& term : equation.terms) {
    if (mentioned(term.bound, variable)) {
      reducing = &term;
    }
  }
  if (reducing == nullptr) {
    return std::string(outcome_name(Outcome::kReplicated));
  }
  for (const Term& term : equation.terms) {
    if (!mentioned(term.bound, variable) && (reducing->reduction != "sum" || !vanishes(term, variable))) {
      reason = "a term of " + result + " outside the reduction would count in every part";
      return {};
    }
  }
  return reducing->reduction;
}

void CaseExplainer::explain_variable(int variable, ExplainedCase& result) const {
  const bool used = std::any_of(equations_.begin(), equations_.end(), [&](const Equation* equation) {
    return std::find(equation->variables.begin(), equation->variables.end(), variable) != equation->variables.end();
  });
  if (!used) {
    return;
  }
  const SymbolicIndex symbolic(description_, variable);
  if (description_.variables[static_cast<std::size_t>(variable)].whole) {
    result.wholes.push_back({name(variable), "whole: every part needs all of it"});
    return;
  }
  ExplainedCut cut;
  cut.variable = name(variable);
  cut.extent = symbolic.extent(variable);
  std::vector<ExplainedTensor> made;
  const auto note_outer = [&](const std::vector<Expression>& indices) {
    for (const Expression& index : indices) {
      const int outer = symbolic.outer(index, variable);
      if (outer >= 0 && cut.note.empty()) {
        cut.note = "only where " + symbolic.extent(outer) + " is 1";
      }
    }
  };
  for (const Equation* const equation : equations_) {
    std::string reason;
    const std::string together = this->together(*equation, variable, reason);
    if (together.empty()) {
      result.wholes.push_back({name(variable), reason});
      return;
    }
    note_outer(equation->index);
    const ResultName& named = description_.results[static_cast<std::size_t>(equation->result)];
    made.push_back({named.name + (named.list ? "[]" : ""), true, region_of(symbolic, equation->index), together});
    for (const Term& term : equation->terms) {
      for (const Expression* const access : term.accesses) {
        note_outer(access->children);
        ExplainedTensor read{access->name, false, region_of(symbolic, access->children), {}};
        if (outside_only(access->id, variable)) {
          read.together = "zeros in others";
        }
        const bool known = std::any_of(cut.tensors.begin(), cut.tensors.end(), [&](const ExplainedTensor& other) {
          return other.name == read.name && other.region == read.region;
        });
        if (!known) {
          cut.tensors.push_back(std::move(read));
        }
      }
    }
  }
  // Arguments in the order of the operator's parameters.
  std::stable_sort(cut.tensors.begin(), cut.tensors.end(), [&](const ExplainedTensor& a, const ExplainedTensor& b) {
    const auto place = [&](const ExplainedTensor& tensor) {
      return std::find_if(description_.parameters.begin(), description_.parameters.end(),
                          [&](const Parameter& parameter) { return parameter.name == tensor.name; });
    };
    return place(a) < place(b);
  });
  cut.tensors.insert(cut.tensors.end(), made.begin(), made.end());
  result.cuts.push_back(std::move(cut));
}

ExplainedCase CaseExplainer::explain() {
  ExplainedCase result;
  for (const Equation* const equation : equations_) {
    if (equation->condition) {
      result.conditions.push_back(expression_text(*equation->condition));
    }
    if (equation->reshaped >= 0) {
      const std::string& from = description_.parameters[static_cast<std::size_t>(equation->reshaped)].name;
      const std::string& to = description_.results[static_cast<std::size_t>(equation->result)].name;
      result.cuts.push_back({"i.0, i.1, ...",
                             "gcd of the first dimensions of a group",
                             "for each group of dimensions with equal products",
                             {{from, false, "blocks of rows", {}}, {to, true, "blocks of rows", "concatenate"}}});
    }
  }
  for (std::size_t v = 0; v < description_.variables.size(); ++v) {
    explain_variable(static_cast<int>(v), result);
  }
  return result;
}

std::string head_of(const Description& description) {
  std::string head = description.op + "(";
  for (const Parameter& parameter : description.parameters) {
    head += (&parameter == description.parameters.data() ? "" : ", ") + parameter.name + (parameter.list ? "[]" : "");
  }
  head += ") -> ";
  for (const ResultName& result : description.results) {
    head += (&result == description.results.data() ? "" : ", ") + result.name + (result.list ? "[]" : "");
  }
  return head;
}

}  // namespace

Explanation explain(const Description& description) {
  Explanation explanation;
  explanation.op = description.op;
  explanation.place = description.file + ":" + std::to_string(description.position.line);
  explanation.elementwise = description.elementwise;
  if (description.elementwise) {
    explanation.lines.push_back("elementwise " + description.op);
    return explanation;
  }
  explanation.lines.push_back(head_of(description) + ":");
  std::vector<std::vector<const Equation*>> by_result(description.results.size());
  std::size_t cases = 1;
  for (const Equation& equation : description.equations) {
    explanation.lines.push_back(equation.text +
                                (equation.condition ? "  if " + expression_text(*equation.condition) : ""));
    auto& list = by_result[static_cast<std::size_t>(equation.result)];
    list.push_back(&equation);
    cases = std::max(cases, list.size());
  }
  std::string where;
  for (const Extent& extent : description.extents) {
    where +=
        (where.empty() ? "where " : ", ") + expression_text(extent.variable) + " < " + expression_text(extent.value);
  }
  for (const Constant& constant : description.constants) {
    where += (where.empty() ? "where " : ", ") + constant.name + " = " + expression_text(constant.value);
  }
  if (!where.empty()) {
    explanation.lines.push_back(where);
  }
  for (const LocalClause& local : description.locals) {
    explanation.lines.push_back(local.text + (local.condition ? "  if " + expression_text(*local.condition) : ""));
  }
  for (std::size_t c = 0; c < cases; ++c) {
    std::vector<const Equation*> chosen;
    for (const auto& equations : by_result) {
      if (!equations.empty()) {
        chosen.push_back(equations[std::min(c, equations.size() - 1)]);
      }
    }
    explanation.cases.push_back(CaseExplainer(description, std::move(chosen)).explain());
  }
  return explanation;
}

}  // namespace tesser::tdl
