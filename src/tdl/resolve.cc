// Names of a description: what each means, and whether variables are used as docs/tdl.md allows.

#include <algorithm>

#include "tdl/functions.h"
#include "tdl/parse.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;

// Where an expression stands.
enum class Place {
  kElements,   // right side of an equation
  kIndex,      // of a tensor
  kAttribute,  // where and conditions
  kLocal,      // of a local call
};

class Resolver {
 public:
  explicit Resolver(Description& description) : description_(description) {}

  std::optional<Defect> run();

 private:
  void fail(const Position& position, std::string message) {
    if (!defect_) {
      defect_ = Defect{position, std::move(message)};
    }
  }
  void find_tensors(const Expression& expression);
  int find_variable(const std::string& name, bool pack) const;
  int variable(const Expression& expression, bool whole);
  void resolve(Expression& expression, Place place);
  void resolve_name(Expression& expression, Place place);
  void resolve_call(Expression& expression, Place place);
  void resolve_tensor(Expression& expression, bool results);
  void resolve_equation(Equation& equation);

  void collect(const Expression& expression, std::vector<int>& variables) const;
  void check_bound(const Expression& expression, std::vector<int>& bound);
  std::vector<Term> terms_of(const Expression& expression, bool wrapped, Equation& equation);
  void add_accesses(const Expression& expression, Term& term, Equation& equation);

  Description& description_;
  std::optional<Defect> defect_;
};

template <typename Named>
int find_name(const std::vector<Named>& list, const std::string& name) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].name == name) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

bool has_reduction(const Expression& expression) {
  return expression.kind == Kind::kReduction ||
         std::any_of(expression.children.begin(), expression.children.end(), has_reduction);
}

void Resolver::find_tensors(const Expression& expression) {
  if (expression.kind == Kind::kAccess) {
    const int parameter = find_name(description_.parameters, expression.name);
    if (parameter < 0) {
      fail(expression.position, "'" + expression.name + "' is no parameter of " + description_.op);
      return;
    }
    description_.parameters[static_cast<std::size_t>(parameter)].tensor = true;
  }
  for (const Expression& child : expression.children) {
    find_tensors(child);
  }
}

int Resolver::find_variable(const std::string& name, bool pack) const {
  for (std::size_t v = 0; v < description_.variables.size(); ++v) {
    if (description_.variables[v].name == name && description_.variables[v].pack == pack) {
      return static_cast<int>(v);
    }
  }
  return -1;
}

// A variable and a pack of the same name have nothing to do with each other.
int Resolver::variable(const Expression& expression, bool whole) {
  int id = find_variable(expression.name, expression.pack);
  if (id < 0) {
    id = static_cast<int>(description_.variables.size());
    description_.variables.push_back({expression.name, expression.pack, false});
  }
  VariableName& variable = description_.variables[static_cast<std::size_t>(id)];
  variable.whole = variable.whole || whole;
  return id;
}

void Resolver::resolve_tensor(Expression& expression, bool results) {
  if (expression.kind == Kind::kVariable && !expression.pack) {
    const int parameter = find_name(description_.parameters, expression.name);
    if (parameter >= 0) {
      expression.kind = Kind::kTensor;
      expression.id = parameter;
      return;
    }
    const int result = find_name(description_.results, expression.name);
    if (result >= 0 && results) {
      expression.kind = Kind::kResult;
      expression.id = result;
      return;
    }
  }
  fail(expression.position, std::string("expected the name of ") + (results ? "an argument or result" : "an argument"));
}

void Resolver::resolve_name(Expression& expression, Place place) {
  if (expression.kind == Kind::kWhole) {
    if (place != Place::kIndex) {
      fail(expression.position, "a whole variable stands in the index of a tensor only");
    }
    expression.id = variable(expression, true);
    return;
  }
  const int parameter = find_name(description_.parameters, expression.name);
  const int result = find_name(description_.results, expression.name);
  if (!expression.pack && parameter >= 0) {
    const bool tensor = description_.parameters[static_cast<std::size_t>(parameter)].tensor;
    if (tensor && place != Place::kLocal) {
      fail(expression.position, "'" + expression.name + "' is a tensor" +
                                    (place == Place::kElements ? ": give it indices, as in " + expression.name + "[i]"
                                                               : " and no attribute"));
    }
    expression.kind = tensor ? Kind::kTensor : Kind::kAttribute;
    expression.id = parameter;
    return;
  }
  if (!expression.pack && result >= 0) {
    fail(expression.position, "'" + expression.name + "' is a result and cannot be read");
    return;
  }
  const int constant = find_name(description_.constants, expression.name);
  if (!expression.pack && constant >= 0) {
    expression.kind = Kind::kConstant;
    expression.id = constant;
    return;
  }
  if (place == Place::kAttribute || place == Place::kLocal) {
    fail(expression.position, "'" + expression.name + "' is neither a parameter nor a constant");
    return;
  }
  expression.id = variable(expression, false);
}

void Resolver::resolve_call(Expression& expression, Place place) {
  const FunctionName* const function = find_function(expression.name);
  if (function == nullptr) {
    expression.id = static_cast<int>(Function::kElementwise);
    if (place != Place::kElements) {
      fail(expression.position, "there is no function '" + expression.name + "' of indices and attributes");
      return;
    }
    for (Expression& child : expression.children) {
      resolve(child, place);
    }
    return;
  }
  expression.id = static_cast<int>(function->function);
  // min and max of elements are functions like any other.
  const int count = static_cast<int>(expression.children.size());
  if (count < function->fewest || count > function->most) {
    fail(expression.position, expression.name + " takes " + std::string(function->usage) + ", not " +
                                  std::to_string(count) + (count == 1 ? " argument" : " arguments"));
    return;
  }
  if (function->local && place != Place::kLocal) {
    fail(expression.position, expression.name + " has a meaning in a local call only");
    return;
  }
  for (std::size_t c = 0; c < expression.children.size(); ++c) {
    Expression& child = expression.children[c];
    if (c == 0 && function->first == FirstArgument::kTensor) {
      resolve_tensor(child, true);
    } else if (c == 0 && function->first == FirstArgument::kParameter) {
      resolve_tensor(child, false);
    } else if (c == 0 && function->first == FirstArgument::kVariable) {
      // A pack may be named with or without its dots.
      if (child.kind == Kind::kVariable) {
        child.id = find_variable(child.name, child.pack);
        child.id = child.id < 0 && !child.pack ? find_variable(child.name, true) : child.id;
      }
      if (child.id < 0) {
        fail(child.position, "expected the name of a variable of the equations");
      }
    } else {
      resolve(child, place == Place::kElements && c > 0 ? Place::kElements : place);
    }
  }
}

void Resolver::resolve(Expression& expression, Place place) {
  if (defect_) {
    return;
  }
  switch (expression.kind) {
    case Kind::kVariable:
    case Kind::kWhole:
      resolve_name(expression, place);
      return;
    case Kind::kCall:
      resolve_call(expression, place);
      return;
    case Kind::kAccess:
      expression.id = find_name(description_.parameters, expression.name);
      for (Expression& child : expression.children) {
        resolve(child, Place::kIndex);
      }
      return;
    case Kind::kIsNull:
      // Of a tensor, too: whether it was given.
      if (find_name(description_.parameters, expression.children.front().name) >= 0) {
        resolve_tensor(expression.children.front(), false);
        return;
      }
      resolve(expression.children.front(), place);
      return;
    case Kind::kReduction:
      for (std::size_t c = 1; c < expression.children.size(); ++c) {
        resolve(expression.children[c], Place::kIndex);
      }
      resolve(expression.children.front(), place);
      return;
    default:
      for (Expression& child : expression.children) {
        resolve(child, place);
      }
  }
}

void Resolver::collect(const Expression& expression, std::vector<int>& variables) const {
  if (expression.kind == Kind::kVariable || expression.kind == Kind::kWhole) {
    variables.push_back(expression.id);
  }
  for (const Expression& child : expression.children) {
    collect(child, variables);
  }
}

// Every variable of the expression stands in the result's index, is bound by a reduction around it, or is whole.
void Resolver::check_bound(const Expression& expression, std::vector<int>& bound) {
  if (expression.kind == Kind::kVariable && std::find(bound.begin(), bound.end(), expression.id) == bound.end() &&
      !description_.variables[static_cast<std::size_t>(expression.id)].whole) {
    fail(expression.position,
         "'" + expression.name + "' stands neither in the result's index nor in a reduction around it");
    return;
  }
  if (expression.kind == Kind::kCall && static_cast<Function>(expression.id) == Function::kExtent) {
    return;
  }
  if (expression.kind == Kind::kReduction) {
    const std::size_t before = bound.size();
    for (std::size_t c = 1; c < expression.children.size(); ++c) {
      std::vector<int> variables;
      collect(expression.children[c], variables);
      for (const int variable : variables) {
        if (std::find(bound.begin(), bound.end(), variable) != bound.end()) {
          const bool part = expression.children[c].kind == Kind::kCall;  // at(pack, axes) of a pack of the result's
          if (!part) {
            fail(expression.children[c].position, "'" +
                                                      description_.variables[static_cast<std::size_t>(variable)].name +
                                                      "' stands in the result's index or is bound already");
            return;
          }
        }
        bound.push_back(variable);
      }
    }
    check_bound(expression.children.front(), bound);
    bound.resize(before);
    return;
  }
  for (const Expression& child : expression.children) {
    check_bound(child, bound);
  }
}

void Resolver::add_accesses(const Expression& expression, Term& term, Equation& equation) {
  if (expression.kind == Kind::kAccess) {
    term.accesses.push_back(&expression);
    return;
  }
  const bool reduction = expression.kind == Kind::kReduction;
  for (std::size_t c = reduction ? 1 : expression.children.size(); c < expression.children.size(); ++c) {
    equation.buried.push_back(&expression.children[c]);
  }
  for (std::size_t c = 0; c < (reduction ? 1 : expression.children.size()); ++c) {
    add_accesses(expression.children[c], term, equation);
  }
}

std::vector<Term> Resolver::terms_of(const Expression& expression, bool wrapped, Equation& equation) {
  const auto is_operation = [&](Operation operation) {
    return expression.kind == Kind::kBinary && static_cast<Operation>(expression.id) == operation;
  };
  if (expression.kind == Kind::kNegate) {
    return terms_of(expression.children.front(), true, equation);
  }
  if (is_operation(Operation::kAdd) || is_operation(Operation::kSubtract)) {
    std::vector<Term> terms = terms_of(expression.children[0], true, equation);
    for (Term& term : terms_of(expression.children[1], true, equation)) {
      terms.push_back(std::move(term));
    }
    return terms;
  }
  if (is_operation(Operation::kMultiply) || is_operation(Operation::kDivide)) {
    const bool left = has_reduction(expression.children[0]);
    const bool right = has_reduction(expression.children[1]);
    const bool linear = left != right && (left || is_operation(Operation::kMultiply));
    if (linear) {
      std::vector<Term> terms = terms_of(expression.children[left ? 0 : 1], true, equation);
      for (Term& term : terms) {
        add_accesses(expression.children[left ? 1 : 0], term, equation);
      }
      return terms;
    }
  }
  Term term;
  if (expression.kind == Kind::kReduction && (expression.name == "sum" || !wrapped)) {
    term.reduction = expression.name;
    const Expression* body = &expression;
    while (body->kind == Kind::kReduction && body->name == term.reduction) {
      for (std::size_t c = 1; c < body->children.size(); ++c) {
        term.bound.push_back(&body->children[c]);
      }
      body = &body->children.front();
    }
    add_accesses(*body, term, equation);
  } else {
    add_accesses(expression, term, equation);
  }
  std::vector<Term> terms;
  terms.push_back(std::move(term));
  return terms;
}

void Resolver::resolve_equation(Equation& equation) {
  for (Expression& index : equation.index) {
    resolve(index, Place::kIndex);
  }
  if (equation.reshaped < 0) {
    resolve(equation.right, Place::kElements);
  }
  if (equation.condition) {
    resolve(*equation.condition, Place::kAttribute);
  }
}

std::optional<Defect> Resolver::run() {
  for (const Equation& equation : description_.equations) {
    find_tensors(equation.right);
  }
  for (const Constant& constant : description_.constants) {
    if (find_name(description_.parameters, constant.name) >= 0 || find_name(description_.results, constant.name) >= 0) {
      fail(constant.position, "'" + constant.name + "' is a parameter or result");
    }
  }
  for (Equation& equation : description_.equations) {
    if (!defect_) {
      resolve_equation(equation);
    }
  }
  for (Extent& extent : description_.extents) {
    if (!defect_ && find_variable(extent.variable.name, extent.variable.pack) < 0) {
      fail(extent.variable.position,
           "no equation has a variable '" + extent.variable.name + (extent.variable.pack ? "...'" : "'"));
    }
    if (!defect_) {
      extent.variable.id = variable(extent.variable, false);
      resolve(extent.value, Place::kAttribute);
    }
  }
  // A constant may use those before it.
  for (std::size_t c = 0; c < description_.constants.size() && !defect_; ++c) {
    resolve(description_.constants[c].value, Place::kAttribute);
    std::vector<const Expression*> open = {&description_.constants[c].value};
    while (!open.empty()) {
      const Expression* const expression = open.back();
      open.pop_back();
      if (expression->kind == Kind::kConstant && expression->id >= static_cast<int>(c)) {
        fail(expression->position, "'" + expression->name + "' is defined later, or by itself");
      }
      for (const Expression& child : expression->children) {
        open.push_back(&child);
      }
    }
  }
  for (LocalClause& local : description_.locals) {
    for (Expression& argument : local.arguments) {
      resolve(argument, Place::kLocal);
    }
    for (Origin& origin : local.origins) {
      for (std::size_t d = 0; d < origin.begins.size(); ++d) {
        resolve(origin.begins[d], Place::kLocal);
        if (origin.ends[d]) {
          resolve(*origin.ends[d], Place::kLocal);
        }
      }
    }
    if (local.condition) {
      resolve(*local.condition, Place::kLocal);
    }
  }
  for (Equation& equation : description_.equations) {
    if (defect_ || equation.reshaped >= 0) {
      continue;
    }
    std::vector<int> bound;
    for (const Expression& index : equation.index) {
      collect(index, bound);
    }
    check_bound(equation.right, bound);
    if (!defect_) {
      equation.variables = bound;
      collect(equation.right, equation.variables);
      std::sort(equation.variables.begin(), equation.variables.end());
      equation.variables.erase(std::unique(equation.variables.begin(), equation.variables.end()),
                               equation.variables.end());
      equation.terms = terms_of(equation.right, false, equation);
    }
  }
  return defect_;
}

}  // namespace

std::optional<Defect> resolve(Description& description) { return Resolver(description).run(); }

}  // namespace tesser::tdl
