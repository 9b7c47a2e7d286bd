// Reads the members of a JSON object; remembers the first thing that was not as expected.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tesser {

// The object must outlive the reader. Members are read in any order; `what` names the object in messages.
class JsonReader {
 public:
  JsonReader(const Json& json, std::string what) : json_(json), what_(std::move(what)) {
    if (json_.object() == nullptr) {
      fail("is not an object");
    }
  }

  std::string string(std::string_view key) { return take(key, "a string", std::string()); }
  std::int64_t integer(std::string_view key, std::int64_t least = std::numeric_limits<std::int64_t>::min()) {
    const std::int64_t value = take(key, "an integer", least);
    if (value < least) {
      fail("'" + std::string(key) + "' is " + std::to_string(value) + ", expected at least " + std::to_string(least));
    }
    return value;
  }
  bool boolean(std::string_view key) { return take(key, "true or false", false); }
  // As json_number_text() writes it.
  double number(std::string_view key) {
    const Json* found = json_.find(key);
    return found != nullptr ? number_of(*found) : take(key, "a number", 0.0);
  }
  const Json::Array& array(std::string_view key) {
    static const Json::Array kEmpty;
    const Json* found = json_.find(key);
    if (found == nullptr || found->array() == nullptr) {
      fail("'" + std::string(key) + "' is missing or not an array");
      return kEmpty;
    }
    return *found->array();
  }
  std::vector<std::int64_t> integers(std::string_view key) {
    std::vector<std::int64_t> values;
    for (const Json& each : array(key)) {
      if (each.integer() == nullptr) {
        fail("'" + std::string(key) + "' holds what is no integer");
      } else {
        values.push_back(*each.integer());
      }
    }
    return values;
  }
  std::vector<std::string> strings(std::string_view key) {
    std::vector<std::string> values;
    for (const Json& each : array(key)) {
      if (each.string() == nullptr) {
        fail("'" + std::string(key) + "' holds what is no string");
      } else {
        values.push_back(*each.string());
      }
    }
    return values;
  }
  std::vector<double> numbers(std::string_view key) {
    std::vector<double> values;
    for (const Json& each : array(key)) {
      values.push_back(number_of(each));
    }
    return values;
  }

  // Of an object that is a member.
  template <typename T>
  std::map<std::string, T> map(std::string_view key) {
    std::map<std::string, T> values;
    const Json* found = json_.find(key);
    if (found == nullptr || found->object() == nullptr) {
      fail("'" + std::string(key) + "' is missing or not an object");
      return values;
    }
    for (const auto& [name, value] : *found->object()) {
      if (const T* member = value.template get<T>()) {
        values.emplace(name, *member);
      } else {
        fail("'" + std::string(key) + "' holds what is of another type");
      }
    }
    return values;
  }
  // Nothing where the member is null or missing.
  std::optional<std::int64_t> optional_integer(std::string_view key,
                                               std::int64_t least = std::numeric_limits<std::int64_t>::min()) {
    const Json* found = json_.find(key);
    return found == nullptr || found->is_null() ? std::nullopt : std::optional(integer(key, least));
  }

  bool has(std::string_view key) const { return json_.find(key) != nullptr; }
  void fail(const std::string& reason) {
    if (error_.empty()) {
      error_ = what_ + ": " + reason;
    }
  }
  Result<void> outcome() const { return error_.empty() ? Result<void>() : invalid_input(error_); }

 private:
  template <typename T>
  T take(std::string_view key, std::string_view expected, T otherwise) {
    const Json* found = json_.find(key);
    const T* value = found != nullptr ? found->get<T>() : nullptr;
    if (value == nullptr) {
      fail("'" + std::string(key) + "' is missing or not " + std::string(expected));
      return otherwise;
    }
    return *value;
  }
  double number_of(const Json& json) {
    if (const auto* number = json.get<double>()) {
      return *number;
    }
    if (const auto* integer = json.integer()) {
      return static_cast<double>(*integer);
    }
    const std::string text = json.string() != nullptr ? *json.string() : "";
    if (text == "inf" || text == "-inf") {
      return text == "inf" ? HUGE_VAL : -HUGE_VAL;
    }
    if (text != "nan") {
      fail("a number was expected");
    }
    return std::nan("");
  }

  const Json& json_;
  std::string what_;
  std::string error_;
};

// The number so that the same comes back; what is not finite as a string.
inline std::string json_number_text(double number) {
  if (std::isfinite(number)) {
    return json_float(number);
  }
  return std::isnan(number) ? "\"nan\"" : number > 0 ? "\"inf\"" : "\"-inf\"";
}

// Parses, reads the object with `read`, and gives what it made or what was wrong.
template <typename T, typename Read>
Result<T> read_json_object(const std::string& text, const std::string& what, const Read& read) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  JsonReader reader(json, what);
  T value{};
  read(reader, value);
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return value;
}

// The objects in an array.
template <typename T, typename Read>
std::vector<T> read_json_list(JsonReader& reader, std::string_view key, const Read& read) {
  std::vector<T> values;
  for (const Json& entry : reader.array(key)) {
    JsonReader member(entry, std::string(key));
    T value{};
    read(member, value);
    if (const Result<void> outcome = member.outcome(); !outcome) {
      reader.fail(outcome.error().message);
    }
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace tesser
