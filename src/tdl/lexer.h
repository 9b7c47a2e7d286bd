// Words of .tdl text. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tdl/description.h"

namespace tesser::tdl {

struct Token {
  enum class Kind : std::uint8_t {
    kName,
    kInteger,
    kNumber,
    kString,
    kSymbol,
    kNewline,  // the next line that holds something begins; `indented` says how
    kEnd,
    kBad,  // text: what is wrong
  };
  Kind kind = Kind::kEnd;
  std::string_view text;  // a string without its quotes
  Position position;
  bool indented = false;       // kNewline: whether the line that follows begins with a space
  std::size_t offset = 0;      // of its first character in the text
  std::size_t end_offset = 0;  // behind its last

  bool is(std::string_view symbol_or_name) const {
    return (kind == Kind::kSymbol || kind == Kind::kName) && text == symbol_or_name;
  }
};

std::string token_text(const Token& token);  // for messages: "'('", "the end of the line"
bool is_reserved_word(std::string_view name);

// Gives one token after another. A line goes on in the next one inside brackets, after an operator, comma or open
// bracket, and where the next one begins with an operator, from, if, and, or; "#" begins a comment.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next();

 private:
  bool skip_blank();  // whether a line ended
  bool continues_line() const;
  Token symbol_or_bad(std::size_t begin, const Position& position);
  Position here() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void new_line();

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_begin_ = 0;
  int line_ = 1;
  int open_ = 0;            // brackets
  bool continues_ = false;  // the last token asks for another one
  bool at_start_ = true;    // nothing was given yet
};

}  // namespace tesser::tdl
