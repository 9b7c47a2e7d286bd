#include "tdl/symbolic.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/json.h"
#include "tdl/functions.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;

std::string literal_text(const Expression& expression) {
  if (!expression.name.empty()) {
    return expression.name;
  }
  return "null";
}

int precedence(const Expression& expression) {
  if (expression.kind == Kind::kNot) {
    return 3;
  }
  if (expression.kind == Kind::kNegate) {
    return 7;
  }
  if (expression.kind == Kind::kIsNull) {
    return 4;
  }
  if (expression.kind != Kind::kBinary) {
    return 8;
  }
  switch (static_cast<Operation>(expression.id)) {
    case Operation::kOr:
      return 1;
    case Operation::kAnd:
      return 2;
    case Operation::kAdd:
    case Operation::kSubtract:
      return 5;
    case Operation::kMultiply:
    case Operation::kDivide:
      return 6;
    default:
      return 4;
  }
}

std::string joined(const std::vector<Expression>& expressions, std::size_t first = 0) {
  std::string text;
  for (std::size_t e = first; e < expressions.size(); ++e) {
    text += (e == first ? "" : ", ") + expression_text(expressions[e]);
  }
  return text;
}

std::string inside(const Expression& child, int outer, bool right) {
  const int inner = precedence(child);
  const std::string text = expression_text(child);
  return inner < outer || (right && inner == outer) ? "(" + text + ")" : text;
}

bool holds_variables(const Expression& expression) {
  return expression.kind == Kind::kVariable || expression.kind == Kind::kWhole ||
         std::any_of(expression.children.begin(), expression.children.end(), holds_variables);
}

// Symbols of variables cannot be mistaken for names.
constexpr char kVariableMark = '$';

}  // namespace

std::string expression_text(const Expression& expression) {
  const std::vector<Expression>& children = expression.children;
  switch (expression.kind) {
    case Kind::kLiteral:
      return literal_text(expression);
    case Kind::kAttribute:
    case Kind::kTensor:
    case Kind::kResult:
    case Kind::kConstant:
      return expression.name;
    case Kind::kVariable:
      return expression.name + (expression.pack ? "..." : "");
    case Kind::kWhole:
      return ":" + expression.name + (expression.pack ? "..." : "");
    case Kind::kAccess:
      return expression.name + "[" + joined(children) + "]";
    case Kind::kCall:
      return expression.name + "(" + joined(children) + ")";
    case Kind::kReduction:
      return expression.name + "[" + joined(children, 1) + "](" + expression_text(children.front()) + ")";
    case Kind::kNegate:
      return "-" + inside(children.front(), 7, false);
    case Kind::kNot:
      return "not " + inside(children.front(), 3, false);
    case Kind::kBinary: {
      const int level = precedence(expression);
      return inside(children[0], level, false) + " " + expression.name + " " + inside(children[1], level, true);
    }
    case Kind::kIsNull:
      return inside(children.front(), 4, false) + " is null";
    case Kind::kElement:
      return inside(children[0], 8, false) + "[" + expression_text(children[1]) + "]";
    case Kind::kList:
      return "[" + joined(children) + "]";
  }
  return {};
}

Polynomial Polynomial::of(std::int64_t constant) {
  Polynomial polynomial;
  if (constant != 0) {
    polynomial.terms_.push_back({{}, constant});
  }
  return polynomial;
}

Polynomial Polynomial::of(std::string symbol) {
  Polynomial polynomial;
  polynomial.terms_.push_back({{std::move(symbol)}, 1});
  return polynomial;
}

Polynomial& Polynomial::add(const Polynomial& other, std::int64_t times) {
  for (const auto& [product, coefficient] : other.terms_) {
    const auto found =
        std::find_if(terms_.begin(), terms_.end(), [&, &p = product](const auto& t) { return t.first == p; });
    if (found == terms_.end()) {
      terms_.emplace_back(product, coefficient * times);
      continue;
    }
    found->second += coefficient * times;
    if (found->second == 0) {
      terms_.erase(found);
    }
  }
  return *this;
}

Polynomial Polynomial::times(const Polynomial& other) const {
  Polynomial result;
  for (const auto& [a, a_times] : terms_) {
    for (const auto& [b, b_times] : other.terms_) {
      Product product = a;
      product.insert(product.end(), b.begin(), b.end());
      std::sort(product.begin(), product.end());
      Polynomial term;
      term.terms_.emplace_back(std::move(product), a_times * b_times);
      result.add(term);
    }
  }
  return result;
}

bool Polynomial::operator==(const Polynomial& other) const {
  Polynomial difference = *this;
  return difference.add(other, -1).zero();
}

std::pair<Polynomial, Polynomial> Polynomial::split(const std::string& symbol) const {
  std::pair<Polynomial, Polynomial> parts;
  for (const auto& [product, coefficient] : terms_) {
    const auto found = std::find(product.begin(), product.end(), symbol);
    if (found == product.end()) {
      parts.second.terms_.emplace_back(product, coefficient);
      continue;
    }
    Product rest(product.begin(), found);
    rest.insert(rest.end(), found + 1, product.end());
    parts.first.terms_.emplace_back(std::move(rest), coefficient);
  }
  return parts;
}

std::string Polynomial::text() const {
  std::string text;
  const auto append = [&](const auto& term) {
    const auto& [product, coefficient] = term;
    const std::int64_t size = std::abs(coefficient);
    std::string factors = size != 1 || product.empty() ? std::to_string(size) : "";
    for (const std::string& symbol : product) {
      factors += (factors.empty() ? "" : "*") + symbol;
    }
    if (text.empty()) {
      text = (coefficient < 0 ? "-" : "") + factors;
    } else {
      text += (coefficient < 0 ? " - " : " + ") + factors;
    }
  };
  // Products first, the constant last, and what is subtracted behind what is added.
  for (const bool constant : {false, true}) {
    for (const bool negative : {false, true}) {
      for (const auto& term : terms_) {
        if (term.first.empty() == constant && (term.second < 0) == negative) {
          append(term);
        }
      }
    }
  }
  return text.empty() ? "0" : text;
}

std::string SymbolicIndex::symbol(int variable) const { return kVariableMark + std::to_string(variable); }

// The constant that is defined as the size of a dimension which the variable indexes alone.
const std::string* SymbolicIndex::constant_extent(int variable) const {
  const auto indexed_alone = [&](const Expression& tensor, std::int64_t dimension) {
    for (const Equation& equation : description_.equations) {
      for (const Term& term : equation.terms) {
        for (const Expression* const access : term.accesses) {
          const std::vector<Expression>& indices = access->children;
          const auto d = static_cast<std::size_t>(dimension);
          const bool plain = access->id == tensor.id && d < indices.size() &&
                             std::none_of(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(d) + 1,
                                          [](const Expression& index) { return index.pack; });
          if (plain && indices[d].kind == Kind::kVariable && indices[d].id == variable) {
            return true;
          }
        }
      }
    }
    return false;
  };
  for (const Constant& constant : description_.constants) {
    const bool size = constant.value.kind == Kind::kCall &&
                      static_cast<Function>(constant.value.id) == Function::kSize &&
                      constant.value.children[0].kind == Kind::kTensor;
    if (size) {
      const auto* const dimension = std::get_if<std::int64_t>(&constant.value.children[1].literal);
      if (constant.value.children[1].kind == Kind::kLiteral && dimension != nullptr && *dimension >= 0 &&
          indexed_alone(constant.value.children[0], *dimension)) {
        return &constant.name;
      }
    }
  }
  return nullptr;
}

std::string SymbolicIndex::extent(int variable) const {
  for (const Extent& extent : description_.extents) {
    if (extent.variable.id == variable) {
      const std::string text = expression_text(extent.value);
      return extent.value.kind == Kind::kBinary ? "(" + text + ")" : text;
    }
  }
  if (const std::string* const constant = constant_extent(variable)) {
    return *constant;
  }
  std::string text = description_.variables[static_cast<std::size_t>(variable)].name;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string SymbolicIndex::whole_or_half(int variable) const {
  return variable == cut_ ? extent(variable) + "/2" : extent(variable);
}

// Over symbols of attributes and of variables; nothing where it is no polynomial of single variables.
std::optional<Polynomial> SymbolicIndex::polynomial(const Expression& expression) const {
  switch (expression.kind) {
    case Kind::kLiteral: {
      const auto* const integer = std::get_if<std::int64_t>(&expression.literal);
      return integer != nullptr ? std::optional(Polynomial::of(*integer)) : std::nullopt;
    }
    case Kind::kVariable:
    case Kind::kWhole:
      return Polynomial::of(symbol(expression.id));
    case Kind::kNegate: {
      const std::optional<Polynomial> inner = polynomial(expression.children.front());
      return inner ? std::optional(Polynomial().add(*inner, -1)) : std::nullopt;
    }
    case Kind::kBinary: {
      const std::optional<Polynomial> a = polynomial(expression.children[0]);
      const std::optional<Polynomial> b = polynomial(expression.children[1]);
      if (!a || !b) {
        return std::nullopt;
      }
      switch (static_cast<Operation>(expression.id)) {
        case Operation::kAdd:
          return Polynomial(*a).add(*b);
        case Operation::kSubtract:
          return Polynomial(*a).add(*b, -1);
        case Operation::kMultiply:
          return a->times(*b);
        default:
          break;
      }
      return holds_variables(expression) ? std::nullopt
                                         : std::optional(Polynomial::of("(" + expression_text(expression) + ")"));
    }
    default:
      return holds_variables(expression) ? std::nullopt : std::optional(Polynomial::of(expression_text(expression)));
  }
}

// The least or greatest value: attributes are taken to be positive.
Polynomial SymbolicIndex::bound(Polynomial form, bool greatest) const {
  for (std::size_t v = 0; v < description_.variables.size(); ++v) {
    const int variable = static_cast<int>(v);
    const auto [coefficient, rest] = form.split(symbol(variable));
    form = rest;
    if (!coefficient.zero() && coefficient.negative() != greatest) {
      form.add(coefficient.times(Polynomial::of(whole_or_half(variable)))).add(coefficient, -1);
    }
  }
  return form;
}

// The expression with intervals in place of variables.
std::string SymbolicIndex::opaque(const Expression& expression) const {
  if (expression.kind == Kind::kVariable || expression.kind == Kind::kWhole) {
    return "0:" + whole_or_half(expression.id);
  }
  if (!holds_variables(expression)) {
    return expression_text(expression);
  }
  if (expression.kind == Kind::kCall) {
    std::string text = expression.name + "(";
    for (std::size_t c = 0; c < expression.children.size(); ++c) {
      text += (c == 0 ? "" : ", ") + interval(expression.children[c]);
    }
    return text + ")";
  }
  if (expression.kind == Kind::kBinary) {
    return opaque(expression.children[0]) + " " + expression.name + " " + opaque(expression.children[1]);
  }
  return expression_text(expression);
}

std::string SymbolicIndex::interval(const Expression& index) const {
  if (!holds_variables(index)) {
    return expression_text(index);
  }
  if (const std::optional<Polynomial> form = polynomial(index)) {
    return bound(*form, false).text() + ":" + bound(*form, true).add(Polynomial::of(1)).text();
  }
  const bool quotient = index.kind == Kind::kBinary && static_cast<Operation>(index.id) == Operation::kDivide;
  if (quotient) {
    if (const std::optional<Polynomial> form = polynomial(index.children[0]);
        form && !holds_variables(index.children[1])) {
      const std::string divisor = expression_text(index.children[1]);
      const Polynomial least = bound(*form, false);
      return (least.zero() ? "0" : "ceil((" + least.text() + ")/" + divisor + ")") + ":floor((" +
             bound(*form, true).text() + ")/" + divisor + ") + 1";
    }
  }
  return opaque(index);
}

int SymbolicIndex::outer(const Expression& index, int variable) const {
  const std::optional<Polynomial> form = polynomial(index);
  if (!form) {
    return -1;
  }
  const Polynomial step = form->split(symbol(variable)).first;
  const Polynomial span = step.times(Polynomial::of(extent(variable)));
  for (std::size_t v = 0; v < description_.variables.size() && !step.zero(); ++v) {
    if (static_cast<int>(v) != variable && form->split(symbol(static_cast<int>(v))).first == span) {
      return static_cast<int>(v);
    }
  }
  return -1;
}

}  // namespace tesser::tdl
