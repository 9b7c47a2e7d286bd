// Finds metrics in lines (docs/formats/logs.md, extractors).
//
// One thread at a time per object. Time and memory for a line are linear in its length, whatever pattern and line are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "platform/job/manifest.h"

namespace tesser::platform {

struct FoundMetrics {
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> steps;                   // in all
  std::optional<std::int64_t> time;                    // microseconds since 1970; absent: of the line
  std::vector<std::pair<std::string, double>> values;  // by name
};

class LineExtractor {
 public:
  virtual ~LineExtractor() = default;
  // None where the line holds nothing of interest.
  virtual std::optional<FoundMetrics> find(std::string_view line) const = 0;
};

// For type "regex", "json" and "tesser". kInvalidInput says what is wrong with a pattern, and where.
Result<std::unique_ptr<LineExtractor>> make_line_extractor(const MetricExtractor& extractor);

}  // namespace tesser::platform
