#include "base/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tesser {
namespace {

// Texts of the parser can quote the input, of any length and content.
constexpr std::size_t kLongestReason = 200;

std::string reason_of(std::string_view what) {
  if (const std::size_t end = what.find("] "); end != std::string_view::npos) {
    what.remove_prefix(end + 2);  // "[json.exception.parse_error.101] "
  }
  constexpr std::string_view kPrefix = "parse error at ";
  if (what.substr(0, kPrefix.size()) == kPrefix) {
    what.remove_prefix(kPrefix.size());
  }
  std::string reason(what.substr(0, kLongestReason));
  for (char& character : reason) {
    if (static_cast<unsigned char>(character) < 0x20 || static_cast<unsigned char>(character) >= 0x7f) {
      character = '?';
    }
  }
  return reason;
}

}  // namespace

// Receives the parser's events and builds the value; the parser itself keeps no recursion.
class JsonBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit JsonBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(number_integer_t value) { return add(Json(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail("integer " + std::to_string(value) + " does not fit 64 bits");
    }
    return add(Json(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) {
    // The parser turns integers too large for it into floats.
    if (text.find_first_of(".eE") == string_t::npos) {
      return fail("integer " + text.substr(0, 40) + " does not fit 64 bits");
    }
    return add(Json(double{value}));
  }
  bool string(string_t& value) { return add(Json(std::move(value))); }
  bool binary(binary_t&) { return fail("binary data"); }

  bool start_object(std::size_t) { return open(Json(Json::Object())); }
  bool key(string_t& key) {
    auto& object = std::get<Json::Object>(open_.back()->value_);
    if (is_repeated(object, key)) {
      return fail("key " + json_string(key.substr(0, 100)) + " occurs twice");
    }
    object.emplace_back(std::move(key), Json());
    return true;
  }
  bool end_object() {
    keys_.erase(open_.size());
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) { return open(Json(Json::Array())); }
  bool end_array() {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& exception) {
    error_ = reason_of(exception.what());
    return false;
  }

  Json& root() { return root_; }
  const std::optional<std::string>& error() const { return error_; }

 private:
  // Small objects are searched, large ones get an index: the keys of a hostile object must not cost quadratic time.
  bool is_repeated(const Json::Object& object, const std::string& key) {
    constexpr std::size_t kLargestSearched = 32;
    if (object.size() < kLargestSearched) {
      for (const auto& entry : object) {
        if (entry.first == key) {
          return true;
        }
      }
      return false;
    }
    auto& keys = keys_[open_.size()];
    if (keys.empty()) {
      for (const auto& entry : object) {
        keys.insert(entry.first);
      }
    }
    return !keys.insert(key).second;
  }

  Json* place(Json value) {
    if (++values_ > limits_.values) {
      fail("more than " + std::to_string(limits_.values) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* const array = std::get_if<Json::Array>(&open_.back()->value_)) {
      return &array->emplace_back(std::move(value));
    }
    Json& slot = std::get<Json::Object>(open_.back()->value_).back().second;
    slot = std::move(value);
    return &slot;
  }

  bool add(Json value) { return place(std::move(value)) != nullptr; }

  bool open(Json value) {
    if (open_.size() >= static_cast<std::size_t>(limits_.depth)) {
      return fail("nested deeper than " + std::to_string(limits_.depth) + " levels");
    }
    Json* const placed = place(std::move(value));
    if (placed == nullptr) {
      return false;
    }
    open_.push_back(placed);
    return true;
  }

  bool fail(const std::string& reason) {
    std::string where;
    for (std::size_t level = 0; level < open_.size() && level < 4; ++level) {
      if (const auto* const array = open_[level]->array()) {
        where += "[" + std::to_string(level + 1 < open_.size() ? array->size() - 1 : array->size()) + "]";
      } else if (const auto& object = *open_[level]->object(); level + 1 < open_.size() && !object.empty()) {
        where += (where.empty() ? "" : ".") + reason_of(object.back().first);
      }
    }
    error_ = (where.empty() ? "" : where + ": ") + reason;
    return false;
  }

  JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;  // stable: a container takes no entry while one of its entries is open
  std::size_t values_ = 0;
  std::unordered_map<std::size_t, std::unordered_set<std::string>> keys_;  // of large open objects, by depth
  std::optional<std::string> error_;
};

const Json* Json::find(std::string_view key) const {
  if (const Object* const entries = object()) {
    for (const auto& [name, value] : *entries) {
      if (name == key) {
        return &value;
      }
    }
  }
  return nullptr;
}

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  JsonBuilder builder(limits);
  const bool parsed = nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &builder);
  if (!parsed) {
    return invalid_input(builder.error().value_or("is not JSON"));
  }
  return std::move(builder.root());
}

void append_json_string(std::string& text, std::string_view string) {
  constexpr std::string_view kHexadecimal = "0123456789abcdef";
  text += '"';
  for (const char character : string) {
    switch (character) {
      case '"':
        text += "\\\"";
        break;
      case '\\':
        text += "\\\\";
        break;
      case '\n':
        text += "\\n";
        break;
      case '\r':
        text += "\\r";
        break;
      case '\t':
        text += "\\t";
        break;
      case '\b':
        text += "\\b";
        break;
      case '\f':
        text += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(character) < 0x20) {
          text += "\\u00";
          text += kHexadecimal[static_cast<unsigned char>(character) >> 4];
          text += kHexadecimal[static_cast<unsigned char>(character) & 15];
        } else {
          text += character;
        }
    }
  }
  text += '"';
}

void append_json_float(std::string& text, double number) {
  TESSER_CHECK(std::isfinite(number), "a number that is not finite");
  // Shortest digits as d.ddde[+-]xx, then laid out as Python does: plain from 1e-4 on and below 1e16.
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t exponent_place = scientific.find('e');
  int exponent = 0;
  const char* const exponent_begin =
      scientific.data() + exponent_place + (scientific[exponent_place + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, end, exponent);
  if (exponent < -4 || exponent >= 16) {
    text += scientific;
    return;
  }
  std::string digits;
  for (const char character : scientific.substr(0, exponent_place)) {
    if (character == '-') {
      text += '-';
    } else if (character != '.') {
      digits += character;
    }
  }
  if (exponent < 0) {
    text += "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    return;
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) {
    text += digits + std::string(whole - digits.size(), '0') + ".0";
  } else {
    text += digits.substr(0, whole) + "." + digits.substr(whole);
  }
}

std::string json_string(std::string_view string) {
  std::string text;
  append_json_string(text, string);
  return text;
}

std::string json_float(double number) {
  std::string text;
  append_json_float(text, number);
  return text;
}

}  // namespace tesser
