#include "tdl/check_clause.h"

#include <charconv>

#include "tdl/lexer.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;

// Recursive descent over the text of a clause; after the first defect every function returns at once.
class ClauseParser {
 public:
  explicit ClauseParser(std::string_view text) : lexer_(text) {
    advance();
    advance();  // the first token says that a line begins
  }

  std::vector<CheckItem> items();
  ExampleCall example();
  const std::string& defect() const { return defect_; }

 private:
  void advance() { token_ = lexer_.next(); }
  bool at_end() const { return token_.kind == Token::Kind::kEnd || !defect_.empty(); }
  void fail(const std::string& what) {
    if (defect_.empty()) {
      const bool end = token_.kind == Token::Kind::kEnd;
      defect_ = "expected " + what + (end ? " at its end" : ", found '" + std::string(token_.text) + "'");
    }
  }
  bool accept(std::string_view word) {
    if (!defect_.empty() || !token_.is(word)) return false;
    advance();
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word)) fail("'" + std::string(word) + "'");
  }
  std::string name(const std::string& what) {
    if (token_.kind != Token::Kind::kName) {
      fail(what);
      return {};
    }
    std::string found(token_.text);
    advance();
    return found;
  }

  CheckItem item();
  Expression binary(Operation operation, std::string_view symbol, Expression left, Expression right);
  Expression condition();
  Expression comparison();
  Expression sum();
  Expression product();
  Expression unary();
  Expression primary();
  std::vector<Expression> list(std::string_view closing);

  Lexer lexer_;
  Token token_;
  std::string defect_;
};

std::vector<CheckItem> ClauseParser::items() {
  std::vector<CheckItem> all;
  do {
    all.push_back(item());
  } while (accept(","));
  if (!at_end()) fail("',' or the end");
  return all;
}

CheckItem ClauseParser::item() {
  CheckItem item;
  item.maybe = accept("maybe");
  item.name = name("the name of an argument, result or extent");
  item.pack = accept("...");
  if (accept(".")) {
    const char* const end = token_.text.data() + token_.text.size();
    if (token_.kind != Token::Kind::kInteger ||
        std::from_chars(token_.text.data(), end, item.element).ec != std::errc()) {
      fail("the place of a tensor in its list");
    }
    advance();
  }
  if (accept("[")) {
    item.dims = list("]");
    if (accept("in")) {
      item.data = name("a kind of data");
      if (accept("<")) item.below = sum();
    }
  } else if (accept("=")) {
    item.kind = CheckItem::Kind::kValue;
    item.values.push_back(sum());
  } else if (accept("in")) {
    item.kind = CheckItem::Kind::kChoice;
    item.values.push_back(unary());
    if (accept("..")) {
      item.kind = CheckItem::Kind::kRange;
      item.values.push_back(unary());
    } else {
      while (!at_end() && !token_.is(",") && !token_.is("if")) item.values.push_back(unary());
    }
  } else {
    fail("'[', '=' or 'in' after '" + item.name + "'");
  }
  if (accept("if")) item.condition = condition();
  return item;
}

ExampleCall ClauseParser::example() {
  ExampleCall call;
  const bool same = accept("same");
  do {
    ExampleArgument argument;
    argument.full = accept("into") || same;
    argument.scalar = accept("scalar");
    const bool literal = token_.kind != Token::Kind::kName || token_.is("true") || token_.is("false") ||
                         token_.is("null") || token_.is("dtype");
    argument.tensor = !literal;
    if (literal) {
      argument.literal = unary();
    } else {
      argument.data = name("a kind of data");
    }
    call.arguments.push_back(std::move(argument));
  } while (accept(","));
  if (accept("->")) {
    do {
      call.results.push_back(name("a kind of data"));
    } while (accept(","));
  }
  if (!at_end()) fail("',' or the end of the call");
  return call;
}

Expression ClauseParser::binary(Operation operation, std::string_view symbol, Expression left, Expression right) {
  Expression expression;
  expression.kind = Kind::kBinary;
  expression.id = static_cast<int>(operation);
  expression.name = symbol;
  expression.children.push_back(std::move(left));
  expression.children.push_back(std::move(right));
  return expression;
}

Expression ClauseParser::condition() {
  Expression left = comparison();
  while (defect_.empty()) {
    if (accept("and")) {
      left = binary(Operation::kAnd, "and", std::move(left), comparison());
    } else if (accept("or")) {
      left = binary(Operation::kOr, "or", std::move(left), comparison());
    } else {
      break;
    }
  }
  return left;
}

Expression ClauseParser::comparison() {
  if (accept("not")) {
    Expression negated;
    negated.kind = Kind::kNot;
    negated.children.push_back(comparison());
    return negated;
  }
  Expression left = sum();
  if (accept("==")) return binary(Operation::kEqual, "==", std::move(left), sum());
  if (accept("!=")) return binary(Operation::kUnequal, "!=", std::move(left), sum());
  return left;
}

Expression ClauseParser::sum() {
  Expression left = product();
  while (defect_.empty()) {
    if (accept("+")) {
      left = binary(Operation::kAdd, "+", std::move(left), product());
    } else if (accept("-")) {
      left = binary(Operation::kSubtract, "-", std::move(left), product());
    } else {
      break;
    }
  }
  return left;
}

Expression ClauseParser::product() {
  Expression left = unary();
  while (defect_.empty()) {
    if (accept("*")) {
      left = binary(Operation::kMultiply, "*", std::move(left), unary());
    } else if (accept("/")) {
      left = binary(Operation::kDivide, "/", std::move(left), unary());
    } else {
      break;
    }
  }
  return left;
}

Expression ClauseParser::unary() {
  if (!accept("-")) return primary();
  Expression negated;
  negated.kind = Kind::kNegate;
  negated.children.push_back(unary());
  return negated;
}

Expression ClauseParser::primary() {
  Expression expression;
  const char* const begin = token_.text.data();
  const char* const end = begin + token_.text.size();
  if (token_.kind == Token::Kind::kInteger) {
    std::int64_t integer = 0;
    if (std::from_chars(begin, end, integer).ec != std::errc()) fail("a smaller number");
    expression.literal = integer;
    advance();
  } else if (token_.kind == Token::Kind::kNumber) {
    double number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) fail("a number within reach");
    expression.literal = number;
    advance();
  } else if (token_.kind == Token::Kind::kString) {
    expression.literal = std::string(token_.text);
    advance();
  } else if (accept("true")) {
    expression.literal = true;
  } else if (accept("false")) {
    expression.literal = false;
  } else if (accept("null")) {
    expression.literal = graph::None{};
  } else if (accept("(")) {
    expression = sum();
    expect(")");
  } else if (accept("[")) {
    expression.kind = Kind::kList;
    expression.children = list("]");
  } else {
    expression.kind = Kind::kVariable;
    expression.name = name("a value");
    if (accept("(")) {
      expression.kind = Kind::kCall;
      expression.children = list(")");
    } else {
      expression.pack = accept("...");
    }
  }
  // A list begins a new value where values stand beside each other: an element directly follows a name or bracket.
  while (defect_.empty() && expression.kind != Kind::kLiteral && expression.kind != Kind::kList && token_.is("[")) {
    advance();
    Expression element;
    element.kind = Kind::kElement;
    element.children.push_back(std::move(expression));
    element.children.push_back(sum());
    expect("]");
    expression = std::move(element);
  }
  return expression;
}

std::vector<Expression> ClauseParser::list(std::string_view closing) {
  std::vector<Expression> all;
  if (accept(closing)) return all;
  do {
    all.push_back(sum());
  } while (accept(","));
  expect(closing);
  return all;
}

tl::unexpected<Error> defect_at(const Description& description, const CheckClause& clause, const std::string& defect) {
  return invalid_input(description.file + ":" + std::to_string(clause.position.line) + ":" +
                       std::to_string(clause.position.column) + ": check of " + description.op + ": " + defect);
}

}  // namespace

Result<std::vector<CheckItem>> parse_check(const Description& description, const CheckClause& clause) {
  ClauseParser parser(clause.text);
  std::vector<CheckItem> items = parser.items();
  if (!parser.defect().empty()) return defect_at(description, clause, parser.defect());
  return items;
}

Result<ExampleCall> parse_example(const Description& description, const CheckClause& clause) {
  ClauseParser parser(clause.text);
  ExampleCall call = parser.example();
  if (!parser.defect().empty()) return defect_at(description, clause, parser.defect());
  return call;
}

}  // namespace tesser::tdl
