// Reads the members of a manifest's mappings, and keeps the first thing, in the order of the text, that is not as it
// should be. Internal to this folder.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/yaml_value.h"

namespace tesser::platform {

class ManifestProblem {
 public:
  explicit ManifestProblem(std::string where) : where_(std::move(where)) {}

  void at(int line, const std::string& message);
  // Something that is missing, or wrong as a whole: said only when no line is wrong.
  void missing(const std::string& message);
  Result<void> outcome() const;

 private:
  std::string where_;
  std::string message_;
  int line_ = std::numeric_limits<int>::max();
};

struct IntegerRange {
  std::int64_t least;
  std::int64_t most;
};

// The members of one mapping. `what` names the mapping in messages: "a manifest", "a data store".
class ManifestFields {
 public:
  ManifestFields(const YamlValue& mapping, std::string what, ManifestProblem& problem);

  // The value of a key, which is known from now on; nullptr when it is not there, or null (which is a problem).
  const YamlValue* find(std::string_view key);
  bool has(std::string_view key) const;
  int line() const { return mapping_.line; }

  // Text that is not empty and fits `is_right`, which `expected` describes. Absent: empty.
  std::string text(std::string_view key, bool (*is_right)(std::string_view), std::string_view expected);
  std::string text(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key, IntegerRange range);
  // "2GiB", or bytes as a number.
  std::optional<std::int64_t> bytes(std::string_view key, IntegerRange range);
  // "1h30m", or seconds as a number.
  std::optional<std::int64_t> seconds(std::string_view key, IntegerRange range);
  // Scalars as they stand.
  std::vector<std::string> words(std::string_view key, bool may_be_empty);
  const std::vector<YamlValue>& list(std::string_view key);
  const YamlValue* mapping(std::string_view key);

  // Every key that nobody has asked for is a problem.
  void finish();
  ManifestProblem& problem() { return problem_; }

 private:
  bool is_kind(const YamlValue& value, YamlValue::Kind kind, std::string_view key, std::string_view expected);

  const YamlValue& mapping_;
  std::string what_;
  ManifestProblem& problem_;
  std::vector<std::string> known_;
};

bool is_free_text(std::string_view text);  // without a zero byte

}  // namespace tesser::platform
