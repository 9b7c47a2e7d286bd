// A regular expression whose named groups are metrics of a line (docs/formats/manifest.md, metrics).
//
// Any thread. Time and memory for a line are linear in its length, whatever pattern and line are.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace re2 {
class RE2;
}

namespace tesser::platform {

class MetricPattern {
 public:
  // kInvalidInput says what is wrong with the pattern: it is none of RE2's, or names no group but `step` and `steps`.
  static Result<MetricPattern> compile(std::string_view pattern);
  MetricPattern(MetricPattern&&) noexcept;
  MetricPattern& operator=(MetricPattern&&) noexcept;
  ~MetricPattern();

  // What the named groups hold, by name; empty for one that took no part. None where the pattern is not in the line.
  std::optional<std::vector<std::pair<std::string, std::string_view>>> find(std::string_view line) const;

 private:
  explicit MetricPattern(std::unique_ptr<re2::RE2> expression);
  std::unique_ptr<re2::RE2> expression_;
};

}  // namespace tesser::platform
