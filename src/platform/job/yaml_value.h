// YAML as manifests use it: one document of mappings, lists and scalars, each with its place in the text. Internal to
// this folder.
//
// Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

struct YamlValue {
  // Scalars by the core schema of YAML 1.2: what is quoted is text.
  enum class Kind : std::uint8_t { kNull, kBoolean, kNumber, kText, kList, kMapping };

  Kind kind = Kind::kNull;
  std::string text;              // of a scalar, as it stands in the text, without quotes
  double number = 0;             // kNumber
  bool is_integer = false;       // kNumber: whole, and exact in a double
  int line = 0;                  // from 1
  std::size_t position = 0;      // bytes before it in the text
  std::vector<YamlValue> items;  // of a list, or the values of a mapping
  std::vector<YamlValue> keys;   // of a mapping: scalars, none twice, in the order of the text

  // Key and value of each member of a mapping; good as long as this is.
  std::vector<std::pair<const YamlValue&, const YamlValue&>> members() const {
    std::vector<std::pair<const YamlValue&, const YamlValue&>> pairs;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      pairs.emplace_back(keys[i], items[i]);
    }
    return pairs;
  }
  bool is_scalar() const { return kind < Kind::kList; }
};

// "a list", "text", for messages.
const char* kind_name(const YamlValue& value);

// A message that quotes a manifest on one line: control characters as \\xNN, and cut when it is long.
std::string one_line(std::string_view message);

// UTF-8 of at most 1 MiB and 20,000 values, nested at most 16 deep, without a zero byte; a byte order mark is for the
// caller to take away. Errors begin with "WHERE, line N: " or "WHERE: ".
Result<YamlValue> parse_yaml(std::string_view text, const std::string& where);

}  // namespace tesser::platform
