#include "platform/job/metric_pattern.h"

#include <algorithm>

#include <fmt/format.h>
#include <re2/re2.h>

namespace tesser::platform {
namespace {

// RE2 of this version knows named groups as (?P<name>...) only.
std::string with_python_groups(std::string_view pattern) {
  std::string made;
  bool in_class = false;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const std::string_view rest = pattern.substr(at);
    if (rest[0] == '\\' && rest.size() > 1) {
      made += rest.substr(0, 2);
      ++at;
      continue;
    }
    in_class = rest[0] == '[' || (in_class && rest[0] != ']');
    if (!in_class && rest.starts_with("(?<") && rest.size() > 3 && rest[3] != '=' && rest[3] != '!') {
      made += "(?P<";
      at += 2;
      continue;
    }
    made += rest[0];
  }
  return made;
}

}  // namespace

MetricPattern::MetricPattern(std::unique_ptr<re2::RE2> expression) : expression_(std::move(expression)) {}
MetricPattern::MetricPattern(MetricPattern&&) noexcept = default;
MetricPattern& MetricPattern::operator=(MetricPattern&&) noexcept = default;
MetricPattern::~MetricPattern() = default;

Result<MetricPattern> MetricPattern::compile(std::string_view pattern) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(std::int64_t{16} << 20);
  auto expression = std::make_unique<RE2>(with_python_groups(pattern), options);
  if (!expression->ok()) {
    return invalid_input(fmt::format("the pattern '{}' is no regular expression: {}", pattern, expression->error()));
  }
  const auto& names = expression->NamedCapturingGroups();
  if (std::all_of(names.begin(), names.end(),
                  [](const auto& group) { return group.first == "step" || group.first == "steps"; })) {
    return invalid_input(fmt::format(
        "the pattern '{}' names no metric; (?<loss>[0-9.]+) makes a metric 'loss' of what it finds", pattern));
  }
  return MetricPattern(std::move(expression));
}

std::optional<std::vector<std::pair<std::string, std::string_view>>> MetricPattern::find(std::string_view line) const {
  std::vector<re2::StringPiece> groups(static_cast<std::size_t>(expression_->NumberOfCapturingGroups()) + 1);
  const re2::StringPiece text(line.data(), line.size());
  if (!expression_->Match(text, 0, line.size(), RE2::UNANCHORED, groups.data(), static_cast<int>(groups.size()))) {
    return std::nullopt;
  }
  std::vector<std::pair<std::string, std::string_view>> found;
  for (const auto& [name, index] : expression_->NamedCapturingGroups()) {
    const re2::StringPiece& group = groups[static_cast<std::size_t>(index)];
    found.emplace_back(name, std::string_view(group.data(), group.size()));
  }
  return found;
}

}  // namespace tesser::platform
