#include "tdl/parse.h"

#include <set>

#include "tdl/parser.h"

namespace tesser::tdl {

using Kind = Expression::Kind;

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
  if (failed() || token_.kind != Token::Kind::kName || (is_reserved_word(token_.text) && !reserved)) {
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
    while (!failed() && token_.is("(")) {
      description->checks.push_back(parse_example_call());
    }
    descriptions.push_back(std::move(description));
  }
}

CheckClause Parser::parse_example_call() {
  CheckClause call;
  call.position = token_.position;
  expect("(", "the operator");
  const std::size_t begin = token_.offset;
  for (int open = 1; !failed() && !at_line_end();) {
    open += token_.is("(") ? 1 : token_.is(")") ? -1 : 0;
    if (open == 0) {
      call.text = text_since(begin);
      break;
    }
    advance();
  }
  expect(")", "the example call");
  return call;
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
    advance();
    const std::size_t begin = token_.offset;
    while (!failed() && !at_line_end()) {
      advance();
    }
    check.text = text_since(begin);
    description.checks.push_back(std::move(check));
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
