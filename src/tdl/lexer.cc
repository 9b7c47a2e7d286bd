#include "tdl/lexer.h"

#include <cctype>

namespace tesser::tdl {
namespace {

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool continues_name(char c) { return starts_name(c) || is_digit(c); }

// Longest first.
constexpr std::string_view kSymbols[] = {"...", "::", "->", "==", "!=", "<=", ">=", "..", "+", "-", "*",
                                         "/",   "(",  ")",  "[",  "]",  ",",  ":",  "=",  "<", ">", "."};

// After these a line cannot end. "..." and ":" may: they end a pack and a head.
bool asks_for_more(std::string_view symbol) {
  constexpr std::string_view kOperators[] = {"+",  "-",  "*",  "/",  ",", "(", "[", "=",
                                             "==", "!=", "<=", ">=", "<", ">", "->"};
  for (const std::string_view candidate : kOperators) {
    if (symbol == candidate) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool is_reserved_word(std::string_view name) {
  constexpr std::string_view kWords[] = {"if",    "and",   "or",    "not",   "is",   "null",       "true",
                                         "false", "where", "local", "check", "from", "elementwise"};
  for (const std::string_view word : kWords) {
    if (name == word) {
      return true;
    }
  }
  return false;
}

std::string token_text(const Token& token) {
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

void Lexer::new_line() {
  ++at_;
  ++line_;
  line_begin_ = at_;
}

// No clause begins so: the line goes on with the one before.
bool Lexer::continues_line() const {
  if (at_ == line_begin_) {
    return false;
  }
  for (const std::string_view word : {"from", "if", "and", "or"}) {
    const std::size_t end = at_ + word.size();
    if (text_.substr(at_, word.size()) == word && (end >= text_.size() || !continues_name(text_[end]))) {
      return true;
    }
  }
  return std::string_view("+-*/").find(text_[at_]) != std::string_view::npos;
}

bool Lexer::skip_blank() {
  bool ended = false;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      new_line();
      ended = true;
    } else if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') {
        ++at_;
      }
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else {
      break;
    }
  }
  return ended;
}

Token Lexer::symbol_or_bad(std::size_t begin, const Position& position) {
  Token token;
  token.position = position;
  token.offset = begin;
  for (const std::string_view symbol : kSymbols) {
    if (text_.substr(begin, symbol.size()) == symbol) {
      at_ += symbol.size();
      token.kind = Token::Kind::kSymbol;
      token.text = text_.substr(begin, symbol.size());
      token.end_offset = at_;
      if (symbol == "(" || symbol == "[") {
        ++open_;
      } else if ((symbol == ")" || symbol == "]") && open_ > 0) {
        --open_;
      }
      continues_ = asks_for_more(symbol);
      return token;
    }
  }
  at_ += 1;
  token.kind = Token::Kind::kBad;
  token.text = "a character that means nothing here";
  token.end_offset = at_;
  return token;
}

Token Lexer::next() {
  const bool ended = skip_blank();
  Token token;
  token.position = here();
  token.offset = at_;
  token.end_offset = at_;
  if (at_ >= text_.size()) {
    return token;
  }
  if ((ended && open_ == 0 && !continues_ && !continues_line()) || at_start_) {
    at_start_ = false;
    token.kind = Token::Kind::kNewline;
    token.indented = at_ > line_begin_;
    return token;
  }
  // A line that begins without indentation begins something new, whatever was left open before.
  if (ended && at_ == line_begin_) {
    open_ = 0;
    continues_ = false;
    token.kind = Token::Kind::kNewline;
    return token;
  }
  const std::size_t begin = at_;
  const char c = peek();
  continues_ = false;
  if (starts_name(c)) {
    while (continues_name(peek())) {
      ++at_;
    }
    token.kind = Token::Kind::kName;
    token.text = text_.substr(begin, at_ - begin);
    continues_ = token.text == "and" || token.text == "or" || token.text == "not";
  } else if (is_digit(c)) {
    while (is_digit(peek())) {
      ++at_;
    }
    token.kind = Token::Kind::kInteger;
    if (peek() == '.' && is_digit(peek(1))) {
      token.kind = Token::Kind::kNumber;
      for (++at_; is_digit(peek());) {
        ++at_;
      }
    }
    const std::size_t sign = peek(1) == '-' || peek(1) == '+' ? 1 : 0;
    if (peek() == 'e' && is_digit(peek(1 + sign))) {
      token.kind = Token::Kind::kNumber;
      for (at_ += 1 + sign; is_digit(peek());) {
        ++at_;
      }
    }
    token.text = text_.substr(begin, at_ - begin);
  } else if (c == '"') {
    ++at_;
    while (at_ < text_.size() && peek() != '"' && peek() != '\n') {
      ++at_;
    }
    if (peek() != '"') {
      token.kind = Token::Kind::kBad;
      token.text = "a string without its closing quote";
    } else {
      token.kind = Token::Kind::kString;
      token.text = text_.substr(begin + 1, at_ - begin - 1);
      ++at_;
    }
  } else {
    return symbol_or_bad(begin, token.position);
  }
  token.end_offset = at_;
  return token;
}

}  // namespace tesser::tdl
