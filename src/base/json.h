// JSON values, read strictly and written deterministically.
//
// Strict: UTF-8 text with nothing after the value, no key twice in an object, integers inside 64 bits with sign, floats
// finite, nesting and the number of values bounded, so that no input makes the reader overflow its stack or fill the
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tesser {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order of the text

  Json() = default;
  template <typename T>
  requires(!std::is_same_v<T, Json>) explicit Json(T value) : value_(std::move(value)) {}

  // The content as this type, or nullptr when it is of another.
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&value_);
  }
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }

  const std::string* string() const { return get<std::string>(); }
  const std::int64_t* integer() const { return get<std::int64_t>(); }
  const Array* array() const { return get<Array>(); }
  const Object* object() const { return get<Object>(); }
  // The entry of an object; nullptr when there is none or this is no object. Linear search.
  const Json* find(std::string_view key) const;

 private:
  friend class JsonBuilder;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

struct JsonLimits {
  int depth = 64;
  std::size_t values = 50'000'000;
};

// Errors have code kInvalidInput and say where in the text and why: "line 3, column 7: ...", "nodes[17]: ...".
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Appends a JSON string with its quotes. Escapes only the quote, the backslash and control characters; everything else
// stays UTF-8.
void append_json_string(std::string& text, std::string_view string);
// Appends the shortest decimal that reads back as the same number, always with a point or an exponent, in the form of
// Python's repr(): 0.1, 1e-08, 100000.0. The number must be finite.
void append_json_float(std::string& text, double number);

std::string json_string(std::string_view string);
std::string json_float(double number);

}  // namespace tesser
