#include "tdl/binding.h"

#include <algorithm>

#include "tdl/affine.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;
using graph::Argument;

bool is_number(const Argument& argument) {
  return std::holds_alternative<double>(argument) || std::holds_alternative<std::int64_t>(argument) ||
         std::holds_alternative<bool>(argument);
}

double number(const Argument& argument) {
  if (const auto* integer = std::get_if<std::int64_t>(&argument)) {
    return static_cast<double>(*integer);
  }
  if (const auto* boolean = std::get_if<bool>(&argument)) {
    return *boolean ? 1 : 0;
  }
  return std::get<double>(argument);
}

Evaluated of_attribute(Argument argument) {
  Evaluated value;
  value.attribute = std::move(argument);
  return value;
}

// Equality of attributes as a description writes it: numbers by value, enumerations by name.
bool equal(const Argument& a, const Argument& b) {
  if (is_number(a) && is_number(b)) {
    return number(a) == number(b);
  }
  const auto text = [](const Argument& argument) -> const std::string* {
    if (const auto* enumerator = std::get_if<graph::Enumerator>(&argument)) {
      return &enumerator->name;
    }
    return std::get_if<std::string>(&argument);
  };
  if (text(a) != nullptr && text(b) != nullptr) {
    return *text(a) == *text(b);
  }
  return a == b;
}

}  // namespace

Binding::Binding(const graph::Program& program, const graph::Node& node, const Description& description)
    : program_(program), node_(node), description_(description), operands_(graph::values_read(node)) {
  first_operand_.reserve(node.args.size());
  std::size_t next = 0;
  for (const Argument& argument : node.args) {
    first_operand_.push_back(next);
    if (const auto* value = std::get_if<graph::ValueRef>(&argument)) {
      next += value->id == graph::kNone ? 0 : 1;
    } else if (const auto* list = std::get_if<std::vector<graph::ValueRef>>(&argument)) {
      next += static_cast<std::size_t>(
          std::count_if(list->begin(), list->end(), [](const graph::ValueRef& ref) { return ref.id != graph::kNone; }));
    }
  }
  lengths_.reserve(description.variables.size());
  for (const VariableName& variable : description.variables) {
    lengths_.push_back(variable.pack ? -1 : 1);
  }
  first_.assign(description.variables.size(), -1);
  if (!description.elementwise) {
    for (std::size_t a = description.parameters.size(); a < node.args.size(); ++a) {
      const bool holds_values = std::holds_alternative<graph::ValueRef>(node.args[a]) ||
                                std::holds_alternative<std::vector<graph::ValueRef>>(node.args[a]);
      if (holds_values) {
        fail("the call has a tensor as argument " + std::to_string(a + 1) + ", the description " +
             std::to_string(description.parameters.size()) + " parameters");
      }
    }
  }
}

void Binding::fail(const std::string& reason) {
  if (!error_) {
    error_ = reason;
  }
}

const Argument* Binding::argument(int parameter) const {
  const auto p = static_cast<std::size_t>(parameter);
  if (p < node_.args.size()) {
    return &node_.args[p];
  }
  const auto& value = description_.parameters[p].value;
  return value ? &*value : nullptr;
}

std::vector<TensorUse> Binding::tensors_of_parameter(int parameter) const {
  const auto p = static_cast<std::size_t>(parameter);
  std::vector<TensorUse> uses;
  if (p >= node_.args.size()) {
    return uses;
  }
  if (const auto* value = std::get_if<graph::ValueRef>(&node_.args[p])) {
    if (value->id != graph::kNone) {
      uses.push_back({static_cast<int>(first_operand_[p]), -1, 0});
    }
  } else if (const auto* list = std::get_if<std::vector<graph::ValueRef>>(&node_.args[p])) {
    int operand = static_cast<int>(first_operand_[p]);
    for (std::size_t e = 0; e < list->size(); ++e) {
      if ((*list)[e].id != graph::kNone) {
        uses.push_back({operand++, -1, e});
      }
    }
  }
  return uses;
}

std::vector<TensorUse> Binding::tensors_of_result(int result) const {
  const auto r = static_cast<std::size_t>(result);
  std::size_t list_at = description_.results.size();
  for (std::size_t i = 0; i < description_.results.size(); ++i) {
    if (description_.results[i].list) {
      list_at = i;
    }
  }
  std::vector<TensorUse> uses;
  const auto add = [&](std::size_t output, std::size_t element) {
    if (output < node_.outputs.size() && node_.outputs[output] != graph::kNone) {
      uses.push_back({-1, static_cast<int>(output), element});
    }
  };
  if (r < list_at) {
    add(r, 0);
    return uses;
  }
  const std::size_t single = description_.results.size() - (list_at < description_.results.size() ? 1 : 0);
  const std::size_t in_list = node_.outputs.size() - std::min(single, node_.outputs.size());
  if (r > list_at) {
    add(r - 1 + in_list, 0);
    return uses;
  }
  for (std::size_t e = 0; e < in_list; ++e) {
    add(r + e, e);
  }
  return uses;
}

const Shape& Binding::shape_of(const TensorUse& use) const {
  const graph::ValueId id = use.operand >= 0 ? operands_[static_cast<std::size_t>(use.operand)]
                                             : node_.outputs[static_cast<std::size_t>(use.result)];
  return program_.value(id).shape;
}

void Binding::set_length(int variable, std::int64_t length) {
  if (length < 0 || length > 64) {
    fail("the ranks do not fit: pack " + description_.variables[static_cast<std::size_t>(variable)].name +
         "... would have " + std::to_string(length) + " dimensions");
    length = 0;
  }
  lengths_[static_cast<std::size_t>(variable)] = length;
}

int Binding::add_variables(int variable) {
  const auto v = static_cast<std::size_t>(variable);
  if (first_[v] < 0) {
    const VariableName& name = description_.variables[v];
    first_[v] = static_cast<int>(variables_.size());
    for (std::int64_t d = 0; d < lengths_[v]; ++d) {
      variables_.push_back({name.pack ? name.name + "." + std::to_string(d) : name.name, -1, name.whole});
    }
  }
  return first_[v];
}

Evaluated Binding::variable_forms(int variable) {
  const auto v = static_cast<std::size_t>(variable);
  Evaluated value;
  value.is_index = true;
  value.is_list = description_.variables[v].pack;
  if (lengths_[v] < 0) {
    fail("how many dimensions pack " + description_.variables[v].name + "... stands for is not known");
    return value;
  }
  const int first = add_variables(variable);
  for (std::int64_t d = 0; d < lengths_[v]; ++d) {
    value.forms.push_back(affine_variable(first + static_cast<int>(d)));
  }
  return value;
}

bool Binding::holds(const Expression& condition) {
  const Evaluated value = evaluate(condition);
  if (failed()) {
    return false;
  }
  const auto* boolean = std::get_if<bool>(&value.attribute);
  if (value.is_index || boolean == nullptr) {
    fail("a condition is neither true nor false");
    return false;
  }
  return *boolean;
}

std::optional<std::vector<std::int64_t>> Binding::integers(const Evaluated& value) {
  std::vector<std::int64_t> list;
  if (value.is_index) {
    for (const AffineIndex& form : value.forms) {
      if (!form.coefficients.empty() || form.divisor != 1) {
        return std::nullopt;
      }
      list.push_back(form.constant);
    }
    return list;
  }
  if (const auto* integer = std::get_if<std::int64_t>(&value.attribute)) {
    list.push_back(*integer);
    return list;
  }
  if (const auto* several = std::get_if<std::vector<std::int64_t>>(&value.attribute)) {
    return *several;
  }
  return std::nullopt;
}

std::optional<std::int64_t> Binding::integer(const Expression& expression) {
  const Evaluated value = evaluate(expression);
  const auto list = integers(value);
  if (!failed() && (!list || list->size() != 1)) {
    fail("'" + expression.name + "' should be an integer");
  }
  return failed() ? std::nullopt : std::optional(list->front());
}

std::vector<AffineIndex> Binding::to_forms(const Evaluated& value, const Expression& expression, bool* is_list) {
  if (value.is_index) {
    if (is_list != nullptr) {
      *is_list = value.is_list;
    }
    return value.forms;
  }
  std::vector<AffineIndex> forms;
  if (const auto* integer = std::get_if<std::int64_t>(&value.attribute)) {
    forms.push_back(affine_constant(*integer));
    if (is_list != nullptr) {
      *is_list = false;
    }
    return forms;
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value.attribute)) {
    for (const std::int64_t integer : *list) {
      forms.push_back(affine_constant(integer));
    }
    if (is_list != nullptr) {
      *is_list = true;
    }
    return forms;
  }
  fail("'" + expression.name + "' should be an integer or a list of integers");
  return forms;
}

std::vector<AffineIndex> Binding::index_forms(const Expression& expression, bool* is_list) {
  return to_forms(evaluate(expression), expression, is_list);
}

Evaluated Binding::evaluate(const Expression& expression) {
  if (failed()) {
    return {};
  }
  switch (expression.kind) {
    case Kind::kLiteral:
      return of_attribute(expression.literal);
    case Kind::kAttribute:
    case Kind::kTensor: {
      const Argument* const given = argument(expression.id);
      if (given == nullptr) {
        if (expression.kind == Kind::kTensor) {
          return {};
        }
        fail("the call leaves out '" + expression.name + "', which has no default in the description");
        return {};
      }
      return of_attribute(*given);
    }
    case Kind::kConstant:
      return evaluate(description_.constants[static_cast<std::size_t>(expression.id)].value);
    case Kind::kVariable:
    case Kind::kWhole:
      return variable_forms(expression.id);
    case Kind::kCall:
      return evaluate_call(expression);
    case Kind::kNegate: {
      Evaluated value = evaluate(expression.children.front());
      if (const auto* real = std::get_if<double>(&value.attribute); real != nullptr && !value.is_index) {
        return of_attribute(-*real);
      }
      Evaluated negated;
      negated.is_index = true;
      for (const AffineIndex& form : to_forms(value, expression.children.front(), &negated.is_list)) {
        negated.forms.push_back(affine_scaled(form, -1, *this));
      }
      return negated;
    }
    case Kind::kNot:
      return of_attribute(!holds(expression.children.front()));
    case Kind::kIsNull: {
      const Expression& tested = expression.children.front();
      if (tested.kind == Kind::kAttribute || tested.kind == Kind::kTensor) {
        const Argument* const given = argument(tested.id);
        return of_attribute(given == nullptr || std::holds_alternative<graph::None>(*given));
      }
      const Evaluated value = evaluate(tested);
      return of_attribute(!value.is_index && std::holds_alternative<graph::None>(value.attribute));
    }
    case Kind::kBinary:
      return evaluate_binary(expression);
    case Kind::kElement: {
      const Evaluated list = evaluate(expression.children[0]);
      const std::optional<std::int64_t> at = integer(expression.children[1]);
      if (failed()) {
        return {};
      }
      if (const auto* booleans = std::get_if<std::vector<bool>>(&list.attribute)) {
        if (*at >= 0 && *at < static_cast<std::int64_t>(booleans->size())) {
          return of_attribute(static_cast<bool>((*booleans)[static_cast<std::size_t>(*at)]));
        }
      }
      if (const auto* numbers = std::get_if<std::vector<double>>(&list.attribute)) {
        if (*at >= 0 && *at < static_cast<std::int64_t>(numbers->size())) {
          return of_attribute((*numbers)[static_cast<std::size_t>(*at)]);
        }
      }
      const std::vector<AffineIndex> forms = to_forms(list, expression.children[0]);
      const auto size = static_cast<std::int64_t>(forms.size());
      const std::int64_t place = *at < 0 ? *at + size : *at;
      if (!failed() && (place < 0 || place >= size)) {
        fail("'" + expression.children[0].name + "' has " + std::to_string(size) + " elements, no element " +
             std::to_string(*at));
      }
      if (failed()) {
        return {};
      }
      Evaluated value;
      value.is_index = true;
      value.forms.push_back(forms[static_cast<std::size_t>(place)]);
      return value;
    }
    case Kind::kList: {
      Evaluated value;
      value.is_index = true;
      value.is_list = true;
      for (const Expression& child : expression.children) {
        for (AffineIndex& form : index_forms(child)) {
          value.forms.push_back(std::move(form));
        }
      }
      return value;
    }
    case Kind::kResult:
    case Kind::kAccess:
    case Kind::kReduction:
      fail("'" + expression.name + "' is a tensor and no attribute");
      return {};
  }
  return {};
}

Evaluated Binding::evaluate_binary(const Expression& expression) {
  const auto operation = static_cast<Operation>(expression.id);
  if (operation == Operation::kAnd || operation == Operation::kOr) {
    const bool left = holds(expression.children[0]);
    if (left == (operation == Operation::kOr)) {
      return of_attribute(left);
    }
    return of_attribute(holds(expression.children[1]));
  }
  const Evaluated left = evaluate(expression.children[0]);
  const Evaluated right = evaluate(expression.children[1]);
  if (failed()) {
    return {};
  }
  const bool arithmetic = operation <= Operation::kDivide;
  const bool real = !left.is_index && !right.is_index && is_number(left.attribute) && is_number(right.attribute) &&
                    (std::holds_alternative<double>(left.attribute) || std::holds_alternative<double>(right.attribute));
  if (arithmetic && !real) {
    bool left_list = false;
    bool right_list = false;
    const std::vector<AffineIndex> a = to_forms(left, expression.children[0], &left_list);
    const std::vector<AffineIndex> b = to_forms(right, expression.children[1], &right_list);
    Evaluated value;
    value.is_index = true;
    value.is_list = left_list || right_list;
    // One stands for all, as a single number of a list attribute does for every dimension in PyTorch.
    const bool spread_a = !left_list || (right_list && a.size() == 1);
    const bool spread_b = !right_list || (left_list && b.size() == 1);
    const std::size_t count = left_list && !(spread_a && right_list) ? a.size() : right_list ? b.size() : 1;
    if (failed() || (!spread_a && a.size() != count) || (!spread_b && b.size() != count) || (spread_a && a.empty()) ||
        (spread_b && b.empty())) {
      fail("lists of " + std::to_string(a.size()) + " and " + std::to_string(b.size()) + " elements do not fit in '" +
           expression.children[0].name + " " + expression.name + " " + expression.children[1].name + "'");
      return {};
    }
    for (std::size_t i = 0; i < count; ++i) {
      value.forms.push_back(affine_combined(operation, a[spread_a ? 0 : i], b[spread_b ? 0 : i], *this));
    }
    return value;
  }
  if (arithmetic) {
    const double a = number(left.attribute);
    const double b = number(right.attribute);
    switch (operation) {
      case Operation::kAdd:
        return of_attribute(a + b);
      case Operation::kSubtract:
        return of_attribute(a - b);
      case Operation::kMultiply:
        return of_attribute(a * b);
      default:
        return of_attribute(a / b);
    }
  }
  // Comparisons: of integers, numbers, or anything for equality.
  const auto plain = [&](const Evaluated& value) -> Argument {
    if (!value.is_index) {
      return value.attribute;
    }
    const auto list = integers(value);
    if (!list) {
      fail("a condition compares indices");
      return graph::None{};
    }
    return value.is_list ? Argument(*list) : Argument(list->front());
  };
  const Argument a = plain(left);
  const Argument b = plain(right);
  if (operation == Operation::kEqual || operation == Operation::kUnequal) {
    return of_attribute(equal(a, b) == (operation == Operation::kEqual));
  }
  if (!is_number(a) || !is_number(b)) {
    fail("'" + expression.name + "' compares something other than numbers");
    return {};
  }
  const double x = number(a);
  const double y = number(b);
  switch (operation) {
    case Operation::kLess:
      return of_attribute(x < y);
    case Operation::kLessOrEqual:
      return of_attribute(x <= y);
    case Operation::kGreater:
      return of_attribute(x > y);
    default:
      return of_attribute(x >= y);
  }
}

}  // namespace tesser::tdl
