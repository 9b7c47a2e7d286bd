#include "platform/learner/metric_extractor.h"

#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "platform/job/metric_pattern.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kMostMetricsOfALine = 1000;
constexpr int kDeepestJson = 16;
// Steps are exact as doubles, too.
constexpr double kMostStep = 9007199254740992.0;

std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range || text.empty() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> step_of(double number) {
  return number >= 0 && number <= kMostStep && number == std::floor(number)
             ? std::optional(static_cast<std::int64_t>(number))
             : std::nullopt;
}

std::optional<double> number_of(const Json& json) {
  if (const double* number = json.get<double>()) {
    return *number;
  }
  if (const std::int64_t* integer = json.integer()) {
    return static_cast<double>(*integer);
  }
  return std::nullopt;
}

std::optional<std::int64_t> step_of(const Json* json) {
  const auto number = json != nullptr ? number_of(*json) : std::nullopt;
  return number ? step_of(*number) : std::nullopt;
}

class RegexExtractor : public LineExtractor {
 public:
  explicit RegexExtractor(MetricPattern pattern) : pattern_(std::move(pattern)) {}

  std::optional<FoundMetrics> find(std::string_view line) const override {
    const auto groups = pattern_.find(line);
    if (!groups) {
      return std::nullopt;
    }
    FoundMetrics found;
    for (const auto& [name, text] : *groups) {
      const auto number = number_of(text);
      if (!number) {
        continue;
      }
      if (name == "step") {
        found.step = step_of(*number);
      } else if (name == "steps") {
        found.steps = step_of(*number);
      } else {
        found.values.emplace_back(name, *number);
      }
    }
    return found;
  }

 private:
  MetricPattern pattern_;
};

void flatten(const Json& json, const std::string& prefix, bool is_outermost, FoundMetrics& found) {
  for (const auto& [key, value] : *json.object()) {
    if (found.values.size() >= kMostMetricsOfALine) {
      return;
    }
    if (is_outermost && (key == "step" || key == "steps" || key == "time")) {
      continue;
    }
    if (value.object() != nullptr) {
      flatten(value, prefix + key + "/", false, found);
    } else if (const auto number = number_of(value)) {
      found.values.emplace_back(prefix + key, *number);
    }
  }
}

// The object that a line is.
std::optional<Json> object_in(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos || line[begin] != '{') {
    return std::nullopt;
  }
  Result<Json> json = parse_json(line, {.depth = kDeepestJson, .values = 100'000});
  return json && json->object() != nullptr ? std::optional(std::move(*json)) : std::nullopt;
}

class JsonExtractor : public LineExtractor {
 public:
  std::optional<FoundMetrics> find(std::string_view line) const override {
    const auto json = object_in(line);
    if (!json) {
      return std::nullopt;
    }
    FoundMetrics found;
    found.step = step_of(json->find("step"));
    found.steps = step_of(json->find("steps"));
    const Json* const time = json->find("time");
    if (const auto seconds = time != nullptr ? number_of(*time) : std::nullopt;
        seconds && *seconds > 0 && *seconds < kMostStep / 1e6) {
      found.time = static_cast<std::int64_t>(*seconds * 1e6);
    }
    flatten(*json, "", true, found);
    return found;
  }
};

// docs/formats/events.md.
class TesserExtractor : public LineExtractor {
 public:
  std::optional<FoundMetrics> find(std::string_view line) const override {
    if (line.find("\"event\"") == std::string_view::npos) {
      return std::nullopt;
    }
    const auto json = object_in(line);
    const Json* const kind = json ? json->find("event") : nullptr;
    if (kind == nullptr || kind->string() == nullptr) {
      return std::nullopt;
    }
    FoundMetrics found;
    found.step = step_of(json->find("step"));
    if (*kind->string() == "start") {
      found.steps = step_of(json->find("until_step"));
    } else if (*kind->string() == "step") {
      take(*json, "loss", found);
      if (const Json* metrics = json->find("metrics"); metrics != nullptr && metrics->object() != nullptr) {
        flatten(*metrics, "", false, found);
      }
      take(*json, "learning_rate", found);
      take(*json, "seconds", found);
    } else if (*kind->string() == "evaluation") {
      if (const Json* results = json->find("results"); results != nullptr && results->object() != nullptr) {
        flatten(*results, "evaluation/", false, found);
      }
    } else {
      return std::nullopt;
    }
    return found;
  }

 private:
  // A number, what is not finite (null), or the first of a list.
  static void take(const Json& json, const std::string& key, FoundMetrics& found) {
    const Json* value = json.find(key);
    if (value != nullptr && value->array() != nullptr && !value->array()->empty()) {
      value = &value->array()->front();
    }
    if (value != nullptr && value->is_null()) {
      found.values.emplace_back(key, std::nan(""));
    } else if (const auto number = value != nullptr ? number_of(*value) : std::nullopt) {
      found.values.emplace_back(key, *number);
    }
  }
};

}  // namespace

Result<std::unique_ptr<LineExtractor>> make_line_extractor(const MetricExtractor& extractor) {
  if (extractor.type == "regex") {
    TESSER_ASSIGN_OR_RETURN(MetricPattern pattern, MetricPattern::compile(extractor.pattern));
    return std::make_unique<RegexExtractor>(std::move(pattern));
  }
  if (extractor.type == "json") {
    return std::make_unique<JsonExtractor>();
  }
  if (extractor.type == "tesser") {
    return std::make_unique<TesserExtractor>();
  }
  return invalid_input(
      fmt::format("metrics: '{}' finds nothing in lines; expected regex, json or tesser", extractor.type));
}

}  // namespace tesser::platform
