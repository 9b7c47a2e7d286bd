// Writes the members of a JSON object, for messages that base/json_reader.h reads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_reader.h"

namespace tesser {

inline std::string json_text(std::int64_t number) { return std::to_string(number); }
inline std::string json_text(int number) { return std::to_string(number); }
inline std::string json_text(double number) { return json_number_text(number); }
inline std::string json_text(bool truth) { return truth ? "true" : "false"; }
inline std::string json_text(const std::string& string) { return json_string(string); }
template <typename T>
std::string json_text(const std::optional<T>& value) {
  return value ? json_text(*value) : "null";
}

// An array of what `text` makes of each value.
template <typename T, typename Text>
std::string json_list(const std::vector<T>& values, const Text& text) {
  std::string joined = "[";
  for (const T& value : values) {
    joined += (joined.size() > 1 ? "," : "") + text(value);
  }
  return joined + "]";
}

template <typename T>
std::string json_list(const std::vector<T>& values) {
  return json_list(values, [](const T& value) { return json_text(value); });
}

// Collects the members of an object.
class JsonMembers {
 public:
  template <typename T>
  JsonMembers& add(std::string_view key, const T& value) {
    return add_text(key, json_text(value));
  }
  // `text` is JSON already.
  JsonMembers& add_text(std::string_view key, const std::string& text) {
    text_ += (text_.empty() ? "" : ",") + json_string(key) + ":" + text;
    return *this;
  }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

// An object with the entries of a map.
template <typename T>
std::string json_object(const std::map<std::string, T>& values) {
  JsonMembers members;
  for (const auto& [name, value] : values) {
    members.add(name, value);
  }
  return members.object();
}

}  // namespace tesser
