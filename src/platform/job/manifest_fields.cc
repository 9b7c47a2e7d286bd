#include "platform/job/manifest_fields.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/nearest_name.h"

namespace tesser::platform {
namespace {

// Digits, at most one point with digits behind it, then a unit: what the schema takes for an amount. bytes_from_text
// takes more ("1.", ".5").
bool is_amount(std::string_view text) {
  const auto skip_digits = [&] {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(digits);
    return digits;
  };
  if (skip_digits() == 0) {
    return false;
  }
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (skip_digits() == 0) {
      return false;
    }
  }
  return text.empty() || text.front() != ' ' || (text.size() > 1 && text[1] != ' ');
}

}  // namespace

bool is_free_text(std::string_view text) { return text.find('\0') == std::string_view::npos; }

void ManifestProblem::at(int line, const std::string& message) {
  if (line < line_) {
    line_ = line;
    message_ = message;
  }
}

void ManifestProblem::missing(const std::string& message) {
  if (message_.empty()) {
    message_ = message;
  }
}

Result<void> ManifestProblem::outcome() const {
  if (message_.empty()) {
    return {};
  }
  const std::string message = one_line(message_);
  return line_ == std::numeric_limits<int>::max()
             ? invalid_input(fmt::format("{}: {}", where_, message))
             : invalid_input(fmt::format("{}, line {}: {}", where_, line_, message));
}

ManifestFields::ManifestFields(const YamlValue& mapping, std::string what, ManifestProblem& problem)
    : mapping_(mapping), what_(std::move(what)), problem_(problem) {
  if (mapping.kind != YamlValue::Kind::kMapping) {
    problem_.at(mapping.line,
                fmt::format("expected keys and values of {}, as `name: mnist`, found {}", what_, kind_name(mapping)));
  }
}

bool ManifestFields::has(std::string_view key) const {
  return std::any_of(mapping_.keys.begin(), mapping_.keys.end(),
                     [&](const YamlValue& name) { return name.text == key; });
}

const YamlValue* ManifestFields::find(std::string_view key) {
  known_.emplace_back(key);
  for (const auto& [name, value] : mapping_.members()) {
    if (name.text != key) {
      continue;
    }
    if (value.kind == YamlValue::Kind::kNull) {
      problem_.at(name.line, fmt::format("'{}' has no value; give one, or take the line away", key));
      return nullptr;
    }
    return &value;
  }
  return nullptr;
}

bool ManifestFields::is_kind(const YamlValue& value, YamlValue::Kind kind, std::string_view key,
                             std::string_view expected) {
  if (value.kind == kind) {
    return true;
  }
  const bool quote = kind == YamlValue::Kind::kText && value.is_scalar();
  problem_.at(value.line, fmt::format("'{}' is {}, expected {}{}", key, kind_name(value), expected,
                                      quote ? fmt::format("; in quotes it is text: '{}'", value.text) : ""));
  return false;
}

std::string ManifestFields::text(std::string_view key, bool (*is_right)(std::string_view), std::string_view expected) {
  const YamlValue* value = find(key);
  if (value == nullptr || !is_kind(*value, YamlValue::Kind::kText, key, "text")) {
    return {};
  }
  if (value->text.empty() || !is_right(value->text)) {
    problem_.at(value->line, fmt::format("'{}' is '{}', expected {}", key, value->text, expected));
    return {};
  }
  return value->text;
}

std::string ManifestFields::text(std::string_view key) {
  return text(key, is_free_text, "text that is not empty, without a zero byte");
}

std::optional<std::int64_t> ManifestFields::integer(std::string_view key, IntegerRange range) {
  const YamlValue* value = find(key);
  if (value == nullptr || !is_kind(*value, YamlValue::Kind::kNumber, key, "a whole number")) {
    return std::nullopt;
  }
  if (!value->is_integer || value->number < static_cast<double>(range.least) ||
      value->number > static_cast<double>(range.most)) {
    problem_.at(value->line, fmt::format("'{}' is {}, expected a whole number from {} to {}", key, value->text,
                                         range.least, range.most));
    return std::nullopt;
  }
  return static_cast<std::int64_t>(value->number);
}

std::optional<std::int64_t> ManifestFields::bytes(std::string_view key, IntegerRange range) {
  const YamlValue* value = find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  const auto bytes = value->kind == YamlValue::Kind::kNumber && value->is_integer && value->number >= 0
                         ? std::optional(static_cast<std::int64_t>(value->number))
                     : value->kind == YamlValue::Kind::kText && is_amount(value->text) ? bytes_from_text(value->text)
                                                                                       : std::nullopt;
  if (!bytes) {
    problem_.at(value->line, fmt::format("'{}' is {}, expected an amount of memory such as 2GiB, 500MB or 800000000",
                                         key, value->is_scalar() ? value->text : kind_name(*value)));
  } else if (*bytes < range.least || *bytes > range.most) {
    problem_.at(value->line, fmt::format("'{}' is {}, expected {} to {}", key, value->text, bytes_text(range.least),
                                         bytes_text(range.most)));
    return std::nullopt;
  }
  return bytes;
}

std::optional<std::int64_t> ManifestFields::seconds(std::string_view key, IntegerRange range) {
  const YamlValue* value = find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  const auto seconds = value->kind == YamlValue::Kind::kNumber && value->is_integer && value->number >= 0
                           ? std::optional(static_cast<std::int64_t>(value->number))
                       : value->kind == YamlValue::Kind::kText && !value->text.starts_with(' ') &&
                               value->text.find_first_not_of("0123456789") != std::string::npos
                           ? seconds_from_text(value->text)
                           : std::nullopt;
  if (!seconds) {
    problem_.at(value->line, fmt::format("'{}' is {}, expected a time such as 90m, 1h30m, 2d, or seconds as a number",
                                         key, value->is_scalar() ? value->text : kind_name(*value)));
  } else if (*seconds < range.least || *seconds > range.most) {
    problem_.at(value->line,
                fmt::format("'{}' is {}, expected {} to {} seconds", key, value->text, range.least, range.most));
    return std::nullopt;
  }
  return seconds;
}

std::vector<std::string> ManifestFields::words(std::string_view key, bool may_be_empty) {
  std::vector<std::string> words;
  const YamlValue* value = find(key);
  if (value == nullptr || !is_kind(*value, YamlValue::Kind::kList, key, "a list")) {
    return words;
  }
  for (const YamlValue& item : value->items) {
    if (!item.is_scalar() || item.kind == YamlValue::Kind::kNull || !is_free_text(item.text)) {
      problem_.at(item.line, fmt::format("'{}' has {} in it, expected words", key, kind_name(item)));
    }
    words.push_back(item.text);
  }
  if (words.empty() && !may_be_empty) {
    problem_.at(value->line, fmt::format("'{}' is an empty list", key));
  }
  return words;
}

const std::vector<YamlValue>& ManifestFields::list(std::string_view key) {
  static const std::vector<YamlValue> kNone;
  const YamlValue* value = find(key);
  return value != nullptr && is_kind(*value, YamlValue::Kind::kList, key, "a list") ? value->items : kNone;
}

const YamlValue* ManifestFields::mapping(std::string_view key) {
  const YamlValue* value = find(key);
  return value != nullptr && is_kind(*value, YamlValue::Kind::kMapping, key, "keys and values") ? value : nullptr;
}

void ManifestFields::finish() {
  for (const auto& [name, value] : mapping_.members()) {
    if (std::find(known_.begin(), known_.end(), name.text) == known_.end()) {
      const auto nearest = nearest_name(name.text, known_);
      problem_.at(name.line, fmt::format("'{}' is no key of {}{}", name.text.substr(0, 100), what_,
                                         nearest ? fmt::format("; did you mean '{}'?", *nearest) : ""));
    }
  }
}

}  // namespace tesser::platform
