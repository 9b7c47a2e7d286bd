#include "platform/job/yaml_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <map>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

namespace tesser::platform {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr int kMostValues = 20'000;
constexpr std::size_t kMostDepth = 16;

// The length of the UTF-8 character at the beginning of the text; 0 when there is none.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) {
      return 0;
    }
  }
  const unsigned second = byte(1);
  const bool is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_no_character = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return is_overlong || is_no_character ? 0 : length;
}

Result<void> check_text(std::string_view text, const std::string& where) {
  if (text.size() > kMostBytes) {
    return invalid_input(fmt::format("{}: is larger than 1 MiB, so it is no manifest", where));
  }
  int line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = text[i] == '\0' ? 0 : character_length(text.substr(i));
    if (length == 0) {
      return invalid_input(fmt::format("{}, line {}: is no text in UTF-8", where, line));
    }
    line += text[i] == '\n' ? 1 : 0;
    i += length;
  }
  return {};
}

// [-+]?[0-9]+, 0o[0-7]+, 0x[0-9a-fA-F]+ and decimal fractions with exponents; .inf and .nan are numbers as well.
std::optional<double> number_of(std::string_view text) {
  std::string_view digits = text;
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) {
    digits.remove_prefix(1);
  } else if (digits.starts_with("0x") || digits.starts_with("0o")) {
    std::uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data() + 2, digits.data() + digits.size(), value, digits[1] == 'x' ? 16 : 8);
    return error == std::errc{} && end == digits.data() + digits.size() ? std::optional(static_cast<double>(value))
                                                                        : std::nullopt;
  }
  if (digits == ".inf" || digits == ".Inf" || digits == ".INF") {
    return is_negative ? -HUGE_VAL : HUGE_VAL;
  }
  if (text == ".nan" || text == ".NaN" || text == ".NAN") {
    return std::nan("");
  }
  // from_chars knows "inf" and "nan", which are words here.
  if (digits.find_first_not_of("0123456789.eE+-") != std::string_view::npos || digits.empty() ||
      digits.find_first_of("0123456789") > 1 || digits.starts_with('-') || digits.starts_with('+')) {
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    value = HUGE_VAL;
  } else if (error != std::errc{}) {
    return std::nullopt;
  }
  return is_negative ? -value : value;
}

void set_scalar(YamlValue& value, const std::string& tag) {
  const std::string& text = value.text;
  if (tag != "?") {  // quoted, or !!str
    value.kind = YamlValue::Kind::kText;
  } else if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    value.kind = YamlValue::Kind::kNull;
  } else if (text == "true" || text == "True" || text == "TRUE" || text == "false" || text == "False" ||
             text == "FALSE") {
    value.kind = YamlValue::Kind::kBoolean;
  } else if (const auto number = number_of(text)) {
    constexpr double kExact = 9007199254740992.0;  // 2^53
    value.kind = YamlValue::Kind::kNumber;
    value.number = *number;
    value.is_integer = std::abs(*number) <= kExact && std::trunc(*number) == *number;
  } else {
    value.kind = YamlValue::Kind::kText;
  }
}

// What ends reading before the parser's own errors do.
struct Refusal {
  int line;
  std::string message;
};

int line_of(const YAML::Mark& mark) { return std::max(mark.line, 0) + 1; }

// Builds the value while the text is read, so that nothing ever holds more than the limits allow.
class Builder : public YAML::EventHandler {
 public:
  YamlValue take() { return std::move(open_.at(0).items.at(0)); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw Refusal{line_of(mark), "a second document begins here; a manifest is one"};
    }
    open_.emplace_back().kind = YamlValue::Kind::kList;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(value_at(mark), anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) {  // it stands within what it names
      throw Refusal{line_of(mark), "an alias stands within what it is an alias of"};
    }
    values_ += found->second.second - 1;
    value_at(mark);  // counts it
    add(found->second.first, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (tag != "!" && tag != "tag:yaml.org,2002:str") {
      check_tag(mark, tag);
    }
    YamlValue value = value_at(mark);
    value.text = text;
    set_scalar(value, tag.empty() ? "?" : tag);
    add(std::move(value), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, YamlValue::Kind::kList);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, YamlValue::Kind::kMapping);
  }
  void OnMapEnd() override { end(); }

 private:
  static void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?") {
      throw Refusal{line_of(mark), fmt::format("the tag '{}' is not allowed; write the value without it", tag)};
    }
  }

  YamlValue value_at(const YAML::Mark& mark) {
    if (open_.size() > kMostDepth || ++values_ > kMostValues) {
      throw Refusal{line_of(mark), open_.size() > kMostDepth ? "is nested too deeply" : "holds too many values"};
    }
    YamlValue value;
    value.line = line_of(mark);
    value.position = static_cast<std::size_t>(std::max(mark.pos, 0));
    return value;
  }

  void begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlValue::Kind kind) {
    if (tag != "!") {
      check_tag(mark, tag);
    }
    YamlValue value = value_at(mark);
    value.kind = kind;
    begun_.emplace_back(anchor, values_);
    open_.push_back(std::move(value));
  }

  void end() {
    YamlValue value = std::move(open_.back());
    open_.pop_back();
    const auto [anchor, before] = begun_.back();
    begun_.pop_back();
    add(std::move(value), anchor, values_ - before + 1);
  }

  void add(YamlValue value, YAML::anchor_t anchor, int count = 1) {
    if (anchor != 0) {
      anchored_[anchor] = {value, count};
    }
    YamlValue& parent = open_.back();
    if (parent.kind != YamlValue::Kind::kMapping || parent.keys.size() > parent.items.size()) {
      parent.items.push_back(std::move(value));
      return;
    }
    if (!value.is_scalar()) {
      throw Refusal{value.line, "a key must be a word"};
    }
    for (const YamlValue& other : parent.keys) {
      if (other.text == value.text) {
        throw Refusal{value.line,
                      fmt::format("'{}' stands here a second time; line {} has it already", value.text, other.line)};
      }
    }
    parent.keys.push_back(std::move(value));
  }

  int documents_ = 0;
  int values_ = 0;
  std::vector<YamlValue> open_;                        // the first holds the document
  std::vector<std::pair<YAML::anchor_t, int>> begun_;  // of those after the first: anchor, and values before them
  std::map<YAML::anchor_t, std::pair<YamlValue, int>> anchored_;  // with the number of their values
};

}  // namespace

const char* kind_name(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      return "nothing";
    case YamlValue::Kind::kBoolean:
      return "true or false";
    case YamlValue::Kind::kNumber:
      return "a number";
    case YamlValue::Kind::kText:
      return "text";
    case YamlValue::Kind::kList:
      return "a list";
    case YamlValue::Kind::kMapping:
      return "a mapping";
  }
  return "";
}

std::string one_line(std::string_view message) {
  constexpr std::size_t kMost = 500;
  std::string line;
  while (!message.empty() && line.size() < kMost) {
    const std::size_t length = std::max<std::size_t>(character_length(message), 1);
    const auto first = static_cast<unsigned char>(message.front());
    line += first < 0x20 || first == 0x7f ? fmt::format("\\x{:02x}", first) : std::string(message.substr(0, length));
    message.remove_prefix(std::min(length, message.size()));
  }
  return line + (message.empty() ? "" : "...");
}

Result<YamlValue> parse_yaml(std::string_view text, const std::string& where) {
  TESSER_RETURN_IF_ERROR(check_text(text, where));
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    Builder builder;
    if (!parser.HandleNextDocument(builder)) {
      return invalid_input(fmt::format("{}: is empty", where));
    }
    parser.HandleNextDocument(builder);  // refuses one
    YamlValue value = builder.take();
    return value.kind == YamlValue::Kind::kNull ? Result<YamlValue>(invalid_input(fmt::format("{}: is empty", where)))
                                                : std::move(value);
  } catch (const Refusal& refusal) {
    return invalid_input(fmt::format("{}, line {}: {}", where, refusal.line, one_line(refusal.message)));
  } catch (const YAML::Exception& error) {  // yaml-cpp's way to report, ends here
    return error.mark.is_null() ? invalid_input(fmt::format("{}: is no YAML: {}", where, one_line(error.msg)))
                                : invalid_input(fmt::format("{}, line {}: is no YAML: {}", where, error.mark.line + 1,
                                                            one_line(error.msg)));
  } catch (const std::exception& error) {
    return invalid_input(fmt::format("{}: is no YAML: {}", where, error.what()));
  }
}

}  // namespace tesser::platform
