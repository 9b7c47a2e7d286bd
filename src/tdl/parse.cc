#include "tdl/parse.h"

#include <charconv>
#include <set>

#include "tdl/lexer.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;

constexpr int kDeepest = 100;  // nesting of expressions
constexpr int kLongest = 500;  // operators of one sort in a row

// What an expression is made of: elements of tensors, where name[...] is an access; or indices, attributes and
// conditions, where it is an element of a list.
enum class Mode { kElements, kAttributes };

bool is_reserved(std::string_view name) {
  constexpr std::string_view kWords[] = {"if",    "and",   "or",    "not",   "is",   "null",       "true",
                                         "false", "where", "local", "check", "from", "elementwise"};
  for (const std::string_view word : kWords) {
    if (name == word) {
      return true;
    }
  }
  return false;
}

bool is_reduction(std::string_view name) { return name == "sum" || name == "max" || name == "min" || name == "prod"; }

std::string quoted(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kNewline:
      return "the end of the line";
    case Token::Kind::kEnd:
      return "the end of the text";
    case Token::Kind::kBad:
      return std::string(token.text);
    case Token::Kind::kString:
      return "a string";
    default:
      return "'" + std::string(token.text) + "'";
  }
}

// Recursive descent. After the first defect every function returns at once, with something of no meaning.
class Parser {
 public:
  Parser(std::string_view text, std::string file) : text_(text), file_(std::move(file)), lexer_(text) { advance(); }

  std::vector<std::shared_ptr<const Description>> parse_file();
  const std::optional<Defect>& defect() const { return defect_; }

 private:
  void advance() {
    last_end_ = token_.end_offset;
    const auto length = static_cast<int>(token_.end_offset - token_.offset);
    last_position_ = {token_.position.line, token_.position.column + length};
    token_ = lexer_.next();
  }
  void fail(const Position& position, std::string message) {
    if (!defect_) {
      defect_ = Defect{position, std::move(message)};
    }
  }
  // Operators in a row nest to the left, as deep as the row is long.
  void count_link(int& links) {
    if (++links > kLongest) {
      fail(token_.position, "the expression is too long");
    }
  }
  void fail_expected(const std::string& what) {
    fail(at_line_end() ? last_position_ : token_.position, "expected " + what + ", found " + quoted(token_));
  }
  bool failed() const { return defect_.has_value(); }
  bool accept(std::string_view word);
  void expect(std::string_view symbol, const std::string& after);
  std::string expect_name(const std::string& what, bool reserved = false);
  std::string expect_operator();
  bool at_line_end() const { return token_.kind == Token::Kind::kNewline || token_.kind == Token::Kind::kEnd; }
  void expect_line_end(const std::string& after);
  std::string text_since(std::size_t offset) const;

  void parse_elementwise(std::vector<std::shared_ptr<const Description>>& descriptions);
  void parse_description(std::vector<std::shared_ptr<const Description>>& descriptions);
  void parse_head(Description& description);
  void parse_clause(Description& description);
  void parse_equation(Description& description);
  void parse_where(Description& description);
  void parse_local(Description& description);
  Origin parse_origin(const Description& description);
  graph::Argument parse_literal();

  Expression parse_expression(Mode mode) { return parse_or(mode); }
  Expression parse_or(Mode mode);
  Expression parse_and(Mode mode);
  Expression parse_not(Mode mode);
  Expression parse_comparison(Mode mode);
  Expression parse_sum(Mode mode);
  Expression parse_product(Mode mode);
  Expression parse_unary(Mode mode);
  Expression parse_postfix(Mode mode);
  Expression parse_primary(Mode mode);
  Expression parse_named(Mode mode);
  Expression parse_reduction(const Token& name);
  std::vector<Expression> parse_list(std::string_view closing, Mode mode, const std::string& what);
  Expression binary(Operation operation, std::string name, Expression left, Expression right);

  std::string_view text_;
  std::string file_;
  Lexer lexer_;
  Token token_;
  std::size_t last_end_ = 0;  // behind the token before this one
  Position last_position_;
  int depth_ = 0;
  std::optional<Defect> defect_;
};

bool Parser::accept(std::string_view word) {
  if (failed() || !token_.is(word)) {
    return false;
  }
  advance();
  return true;
}

void Parser::expect(std::string_view symbol, const std::string& after) {
  if (!accept(symbol)) {
    fail_expected("'" + std::string(symbol) + "' after " + after);
  }
}

std::string Parser::expect_name(const std::string& what, bool reserved) {
  if (failed() || token_.kind != Token::Kind::kName || (is_reserved(token_.text) && !reserved)) {
    fail_expected(what);
    return {};
  }
  std::string name(token_.text);
  advance();
  return name;
}

std::string Parser::expect_operator() {
  std::string op = expect_name("an operator such as aten::mm");
  expect("::", "the namespace of an operator");
  op += "::" + expect_name("the operator's name", true);
  if (accept(".")) {
    op += "." + expect_name("the operator's overload", true);
  }
  return op;
}

void Parser::expect_line_end(const std::string& after) {
  if (!failed() && !at_line_end()) {
    fail_expected("the end of the line after " + after);
  }
}

std::string Parser::text_since(std::size_t offset) const {
  std::string text;
  bool comment = false;
  for (const char c : text_.substr(offset, last_end_ > offset ? last_end_ - offset : 0)) {
    comment = c != '\n' && (comment || c == '#');
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (comment || (blank && (text.empty() || text.back() == ' '))) {
      continue;
    }
    text += blank ? ' ' : c;
  }
  return text;
}

std::vector<std::shared_ptr<const Description>> Parser::parse_file() {
  std::vector<std::shared_ptr<const Description>> descriptions;
  while (!failed()) {
    if (token_.kind == Token::Kind::kEnd) {
      break;
    }
    if (token_.kind == Token::Kind::kNewline) {
      const bool indented = token_.indented;
      advance();
      if (indented) {
        fail(token_.position, "a line that is indented belongs to a description, and none begins above it");
      }
      continue;
    }
    if (token_.is("elementwise")) {
      parse_elementwise(descriptions);
    } else {
      parse_description(descriptions);
    }
  }
  std::set<std::string> seen;
  for (const auto& description : descriptions) {
    if (!seen.insert(description->op).second) {
      fail(description->position, description->op + " is described twice in this file");
    }
  }
  return descriptions;
}

void Parser::parse_elementwise(std::vector<std::shared_ptr<const Description>>& descriptions) {
  advance();
  if (at_line_end() && !token_.indented) {
    fail_expected("an operator such as aten::relu after 'elementwise'");
  }
  while (!failed() && (!at_line_end() || (token_.kind == Token::Kind::kNewline && token_.indented))) {
    if (token_.kind == Token::Kind::kNewline) {
      advance();
      continue;
    }
    auto description = std::make_shared<Description>();
    description->file = file_;
    description->position = token_.position;
    description->elementwise = true;
    description->op = expect_operator();
    descriptions.push_back(std::move(description));
  }
}

void Parser::parse_description(std::vector<std::shared_ptr<const Description>>& descriptions) {
  auto description = std::make_shared<Description>();
  description->file = file_;
  description->position = token_.position;
  parse_head(*description);
  while (!failed() && token_.kind == Token::Kind::kNewline && token_.indented) {
    advance();
    parse_clause(*description);
  }
  if (!failed() && !at_line_end()) {
    fail_expected("the end of the line after ':'");
  }
  if (!failed() && description->equations.empty()) {
    fail(description->position, description->op + " has no equation");
  }
  if (!failed()) {
    defect_ = resolve(*description);
  }
  descriptions.push_back(std::move(description));
}

void Parser::parse_head(Description& description) {
  description.op = expect_operator();
  std::set<std::string> names;
  const auto declare = [&](const std::string& name, const Position& position) {
    if (!failed() && !names.insert(name).second) {
      fail(position, "'" + name + "' is named twice");
    }
  };
  expect("(", "the operator");
  if (!accept(")")) {
    do {
      Parameter parameter;
      const Position position = token_.position;
      parameter.name = expect_name("a parameter");
      declare(parameter.name, position);
      if (accept("[")) {
        expect("]", "'['");
        parameter.list = true;
        parameter.tensor = true;
      }
      if (accept("=")) {
        parameter.value = parse_literal();
      }
      description.parameters.push_back(std::move(parameter));
    } while (accept(","));
    expect(")", "the parameters");
  }
  expect("->", "')'");
  do {
    ResultName result;
    const Position position = token_.position;
    result.name = expect_name("a result");
    declare(result.name, position);
    if (accept("[")) {
      expect("]", "'['");
      for (const ResultName& other : description.results) {
        if (other.list) {
          fail(position, "only one result may be a list");
        }
      }
      result.list = true;
    }
    description.results.push_back(std::move(result));
  } while (accept(","));
  expect(":", "the results");
}

graph::Argument Parser::parse_literal() {
  Expression literal = parse_unary(Mode::kAttributes);
  if (failed()) {
    return graph::None{};
  }
  bool negative = false;
  const Position position = literal.position;
  if (literal.kind == Kind::kNegate) {
    negative = true;
    Expression inner = std::move(literal.children.front());
    literal = std::move(inner);
  }
  if (literal.kind == Kind::kList) {
    std::vector<std::int64_t> integers;
    for (const Expression& element : literal.children) {
      const Expression& plain = element.kind == Kind::kNegate ? element.children.front() : element;
      if (plain.kind != Kind::kLiteral || !std::holds_alternative<std::int64_t>(plain.literal)) {
        fail(element.position, "a default may be a list of integers only");
        return graph::None{};
      }
      integers.push_back(std::get<std::int64_t>(plain.literal) * (element.kind == Kind::kNegate ? -1 : 1));
    }
    if (!negative) {
      return integers;
    }
  } else if (literal.kind == Kind::kLiteral) {
    if (!negative) {
      return literal.literal;
    }
    if (const auto* integer = std::get_if<std::int64_t>(&literal.literal)) {
      return -*integer;
    }
    if (const auto* number = std::get_if<double>(&literal.literal)) {
      return -*number;
    }
  }
  fail(position, "a default must be a number, a string, true, false, null or a list of integers");
  return graph::None{};
}

void Parser::parse_clause(Description& description) {
  if (token_.is("where")) {
    parse_where(description);
  } else if (token_.is("local")) {
    parse_local(description);
  } else if (token_.is("check")) {
    CheckClause check;
    check.position = token_.position;
    check.text = lexer_.rest_of_line();
    description.checks.push_back(std::move(check));
    advance();
  } else {
    parse_equation(description);
  }
}

void Parser::parse_equation(Description& description) {
  Equation equation;
  equation.position = token_.position;
  const std::size_t begin = token_.offset;
  const std::string name = expect_name("an equation, where, local or check");
  equation.result = -1;
  for (std::size_t r = 0; r < description.results.size(); ++r) {
    if (description.results[r].name == name) {
      equation.result = static_cast<int>(r);
    }
  }
  if (equation.result < 0) {
    fail(equation.position, "'" + name + "' is no result of " + description.op);
  }
  if (accept("=")) {
    if (!accept("reshape")) {
      fail_expected("reshape(...) after '=': any other result is given indices, as in " + name + "[i] = ...");
    }
    expect("(", "reshape");
    const Position position = token_.position;
    const std::string parameter = expect_name("a parameter");
    for (std::size_t p = 0; p < description.parameters.size(); ++p) {
      if (description.parameters[p].name == parameter && !description.parameters[p].list) {
        equation.reshaped = static_cast<int>(p);
        description.parameters[p].tensor = true;
      }
    }
    if (equation.reshaped < 0) {
      fail(position, "'" + parameter + "' is no parameter that could be reshaped");
    }
    expect(")", "the parameter");
  } else {
    expect("[", "'" + name + "'");
    equation.index = parse_list("]", Mode::kAttributes, "index");
    expect("=", "the result's index");
    equation.right = parse_expression(Mode::kElements);
  }
  equation.text = text_since(begin);
  if (accept("if")) {
    equation.condition = parse_expression(Mode::kAttributes);
  }
  expect_line_end("the equation");
  description.equations.push_back(std::move(equation));
}

void Parser::parse_where(Description& description) {
  advance();
  do {
    Expression name;
    name.kind = Kind::kVariable;
    name.position = token_.position;
    name.name = expect_name("a variable or constant");
    name.pack = accept("...");
    if (accept("<")) {
      Extent extent;
      extent.value = parse_sum(Mode::kAttributes);
      extent.variable = std::move(name);
      description.extents.push_back(std::move(extent));
    } else if (!name.pack && accept("=")) {
      for (const Constant& other : description.constants) {
        if (other.name == name.name) {
          fail(name.position, "'" + name.name + "' is a constant already");
        }
      }
      description.constants.push_back({name.name, parse_sum(Mode::kAttributes), name.position});
    } else {
      fail_expected(name.pack ? "'<' after a pack" : "'<' (extent of a variable) or '=' (constant)");
    }
  } while (accept(","));
  expect_line_end("where");
}

Origin Parser::parse_origin(const Description& description) {
  Origin origin;
  if (token_.kind == Token::Kind::kName) {
    const Position position = token_.position;
    const std::string name = expect_name("a result");
    origin.result = -1;
    for (std::size_t r = 0; r < description.results.size(); ++r) {
      if (description.results[r].name == name && !description.results[r].list) {
        origin.result = static_cast<int>(r);
      }
    }
    if (origin.result < 0) {
      fail(position, "'" + name + "' is no result (or a list of them)");
    }
  }
  expect("[", "from");
  if (accept("]")) {
    return origin;
  }
  do {
    origin.begins.push_back(parse_sum(Mode::kAttributes));
    origin.ends.emplace_back();
    if (accept(":")) {
      origin.ends.back() = parse_sum(Mode::kAttributes);
    }
  } while (accept(","));
  expect("]", "the origin");
  return origin;
}

void Parser::parse_local(Description& description) {
  LocalClause local;
  local.position = token_.position;
  const std::size_t begin = token_.offset;
  advance();
  local.op = expect_operator();
  expect("(", "the operator");
  local.arguments = parse_list(")", Mode::kAttributes, "argument");
  if (accept("from")) {
    do {
      local.origins.push_back(parse_origin(description));
    } while (accept(","));
  }
  local.text = text_since(begin);
  if (accept("if")) {
    local.condition = parse_expression(Mode::kAttributes);
  }
  expect_line_end("the local call");
  description.locals.push_back(std::move(local));
}

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
  if (token_.kind == Token::Kind::kName && !is_reserved(token_.text)) {
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

}  // namespace

Result<std::vector<std::shared_ptr<const Description>>> parse(std::string_view text, const std::string& file) {
  Parser parser(text, file);
  auto descriptions = parser.parse_file();
  if (!parser.defect()) {
    return descriptions;
  }
  const Defect& defect = *parser.defect();
  std::string message = file + ":" + std::to_string(defect.position.line) + ":" +
                        std::to_string(defect.position.column) + ": " + defect.message;
  std::size_t begin = 0;
  for (int line = 1; line < defect.position.line && begin < text.size(); ++line) {
    begin = text.find('\n', begin);
    begin = begin == std::string_view::npos ? text.size() : begin + 1;
  }
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  constexpr std::size_t kLongest = 200;
  if (!line.empty() && line.size() <= kLongest) {
    std::string mark;
    for (std::size_t c = 0; c + 1 < static_cast<std::size_t>(defect.position.column); ++c) {
      mark += c < line.size() && line[c] == '\t' ? '\t' : ' ';
    }
    message += "\n    " + std::string(line) + "\n    " + mark + "^";
  }
  return invalid_input(message);
}

}  // namespace tesser::tdl
