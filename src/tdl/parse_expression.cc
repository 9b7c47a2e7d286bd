// Expressions of .tdl text.

#include <charconv>

#include "tdl/parser.h"
#include "tdl/semantics.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;

constexpr int kDeepest = 100;  // nesting of expressions

bool is_reduction(std::string_view name) { return reduction_from_name(name).has_value(); }

}  // namespace

std::vector<Expression> Parser::parse_list(std::string_view closing, Mode mode, const std::string& what) {
  std::vector<Expression> list;
  if (accept(closing)) {
    return list;
  }
  do {
    list.push_back(parse_expression(mode));
  } while (accept(","));
  expect(closing, what);
  return list;
}

Expression Parser::binary(Operation operation, std::string name, Expression left, Expression right) {
  Expression expression;
  expression.kind = Kind::kBinary;
  expression.id = static_cast<int>(operation);
  expression.name = std::move(name);
  expression.position = left.position;
  expression.children.push_back(std::move(left));
  expression.children.push_back(std::move(right));
  return expression;
}

Expression Parser::parse_or(Mode mode) {
  Expression left = parse_and(mode);
  int links = 0;
  while (accept("or")) {
    count_link(links);
    left = binary(Operation::kOr, "or", std::move(left), parse_and(mode));
  }
  return left;
}

Expression Parser::parse_and(Mode mode) {
  Expression left = parse_not(mode);
  int links = 0;
  while (accept("and")) {
    count_link(links);
    left = binary(Operation::kAnd, "and", std::move(left), parse_not(mode));
  }
  return left;
}

Expression Parser::parse_not(Mode mode) {
  const Position position = token_.position;
  if (!token_.is("not")) {
    return parse_comparison(mode);
  }
  Expression expression;
  expression.kind = Kind::kNot;
  expression.position = position;
  advance();
  if (++depth_ > kDeepest) {
    fail(position, "the expression is nested too deeply");
  } else {
    expression.children.push_back(parse_not(mode));
  }
  --depth_;
  return expression;
}

Expression Parser::parse_comparison(Mode mode) {
  static constexpr std::pair<std::string_view, Operation> kComparisons[] = {
      {"==", Operation::kEqual},          {"!=", Operation::kUnequal}, {"<=", Operation::kLessOrEqual},
      {">=", Operation::kGreaterOrEqual}, {"<", Operation::kLess},     {">", Operation::kGreater}};
  Expression left = parse_sum(mode);
  for (const auto& [symbol, operation] : kComparisons) {
    if (accept(symbol)) {
      return binary(operation, std::string(symbol), std::move(left), parse_sum(mode));
    }
  }
  if (accept("is")) {
    const bool negated = accept("not");
    Expression test;
    test.kind = Kind::kIsNull;
    test.position = left.position;
    expect("null", "'is'");
    test.children.push_back(std::move(left));
    if (!negated) {
      return test;
    }
    Expression expression;
    expression.kind = Kind::kNot;
    expression.position = test.position;
    expression.children.push_back(std::move(test));
    return expression;
  }
  return left;
}

Expression Parser::parse_sum(Mode mode) {
  Expression left = parse_product(mode);
  int links = 0;
  while (!failed()) {
    count_link(links);
    if (accept("+")) {
      left = binary(Operation::kAdd, "+", std::move(left), parse_product(mode));
    } else if (accept("-")) {
      left = binary(Operation::kSubtract, "-", std::move(left), parse_product(mode));
    } else {
      break;
    }
  }
  return left;
}

Expression Parser::parse_product(Mode mode) {
  Expression left = parse_unary(mode);
  int links = 0;
  while (!failed()) {
    count_link(links);
    if (accept("*")) {
      left = binary(Operation::kMultiply, "*", std::move(left), parse_unary(mode));
    } else if (accept("/")) {
      left = binary(Operation::kDivide, "/", std::move(left), parse_unary(mode));
    } else {
      break;
    }
  }
  return left;
}

Expression Parser::parse_unary(Mode mode) {
  const Position position = token_.position;
  Expression expression;
  if (++depth_ > kDeepest) {
    fail(position, "the expression is nested too deeply");
  } else if (accept("-")) {
    expression.kind = Kind::kNegate;
    expression.position = position;
    expression.children.push_back(parse_unary(mode));
  } else {
    expression = parse_postfix(mode);
  }
  --depth_;
  return expression;
}

Expression Parser::parse_postfix(Mode mode) {
  Expression expression = parse_primary(mode);
  int links = 0;
  while (!failed() && mode == Mode::kAttributes && token_.is("[")) {
    count_link(links);
    Expression element;
    element.kind = Kind::kElement;
    element.position = expression.position;
    advance();
    element.children.push_back(std::move(expression));
    element.children.push_back(parse_expression(Mode::kAttributes));
    expect("]", "the place in a list");
    expression = std::move(element);
  }
  return expression;
}

Expression Parser::parse_primary(Mode mode) {
  Expression expression;
  expression.position = token_.position;
  if (failed()) {
    return expression;
  }
  if (token_.kind == Token::Kind::kInteger || token_.kind == Token::Kind::kNumber) {
    const char* const begin = token_.text.data();
    const char* const end = begin + token_.text.size();
    if (token_.kind == Token::Kind::kInteger) {
      std::int64_t integer = 0;
      if (std::from_chars(begin, end, integer).ec != std::errc()) {
        fail(token_.position, "this number is too large");
      }
      expression.literal = integer;
    } else {
      double number = 0;
      if (std::from_chars(begin, end, number).ec != std::errc()) {
        fail(token_.position, "this number is too large or too small");
      }
      expression.literal = number;
    }
    expression.name = token_.text;
    advance();
    return expression;
  }
  if (token_.kind == Token::Kind::kString) {
    expression.literal = std::string(token_.text);
    expression.name = "\"" + std::string(token_.text) + "\"";
    advance();
    return expression;
  }
  if (accept("(")) {
    expression = parse_expression(mode);
    expect(")", "the expression");
    return expression;
  }
  if (mode == Mode::kAttributes && accept("[")) {
    expression.kind = Kind::kList;
    expression.children = parse_list("]", mode, "element");
    return expression;
  }
  if (mode == Mode::kAttributes && accept(":")) {
    expression.kind = Kind::kWhole;
    expression.name = expect_name("the name of a whole variable after ':'");
    expression.pack = accept("...");
    return expression;
  }
  if (token_.is("true") || token_.is("false")) {
    expression.literal = token_.is("true");
    expression.name = token_.text;
    advance();
    return expression;
  }
  if (accept("null")) {
    expression.name = "null";
    return expression;
  }
  // where() of elements is a function like any other.
  const bool function = mode == Mode::kElements && token_.is("where");
  if (token_.kind == Token::Kind::kName && (function || !is_reserved_word(token_.text))) {
    return parse_named(mode);
  }
  fail_expected(mode == Mode::kElements ? "an expression" : "an index or attribute");
  return expression;
}

Expression Parser::parse_named(Mode mode) {
  const Token name = token_;
  Expression expression;
  expression.position = name.position;
  expression.name = name.text;
  advance();
  if (accept("(")) {
    expression.kind = Kind::kCall;
    expression.children = parse_list(")", mode, "argument");
  } else if (mode == Mode::kElements && token_.is("[")) {
    if (is_reduction(name.text)) {
      return parse_reduction(name);
    }
    advance();
    expression.kind = Kind::kAccess;
    expression.children = parse_list("]", Mode::kAttributes, "index");
  } else {
    expression.kind = Kind::kVariable;  // resolve() decides
    expression.pack = accept("...");
  }
  return expression;
}

Expression Parser::parse_reduction(const Token& name) {
  Expression expression;
  expression.kind = Kind::kReduction;
  expression.position = name.position;
  expression.name = name.text;
  expect("[", "'" + expression.name + "'");
  std::vector<Expression> bound = parse_list("]", Mode::kAttributes, "variable");
  expect("(", "what is reduced over");
  expression.children.push_back(parse_expression(Mode::kElements));
  expect(")", "what is reduced");
  for (Expression& variable : bound) {
    expression.children.push_back(std::move(variable));
  }
  return expression;
}

}  // namespace tesser::tdl
