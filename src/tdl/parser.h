// Recursive descent over .tdl text. Internal to this folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tdl/lexer.h"
#include "tdl/parse.h"

namespace tesser::tdl {

inline constexpr int kLongestExpression = 500;  // operators of one sort in a row

// What an expression is made of: elements of tensors, where name[...] is an access; or indices, attributes and
// conditions, where it is an element of a list.
enum class Mode { kElements, kAttributes };

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
    if (++links > kLongestExpression) {
      fail(token_.position, "the expression is too long");
    }
  }
  void fail_expected(const std::string& what) {
    fail(at_line_end() ? last_position_ : token_.position, "expected " + what + ", found " + token_text(token_));
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
  CheckClause parse_example_call();
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

}  // namespace tesser::tdl
