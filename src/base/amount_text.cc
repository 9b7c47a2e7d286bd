#include "base/amount_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace tesser {

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    return fmt::format("{} bytes", bytes);
  }
  double amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; amount >= 1024 && unit < 3; ++unit) {
    amount /= 1024;
  }
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::optional<std::int64_t> bytes_from_text(std::string_view text) {
  double amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount, std::chars_format::fixed);
  if (error != std::errc{} || !(amount >= 0)) return std::nullopt;
  std::string unit;
  for (const char c : text.substr(static_cast<std::size_t>(end - text.data()))) {
    if (c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  constexpr std::string_view kPrefixes = "kmgt";
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const std::size_t power = kPrefixes.find(unit.front());
    if (power == std::string_view::npos) return std::nullopt;
    const std::string_view rest = std::string_view(unit).substr(1);
    if (rest != "b" && rest != "ib" && rest != "i" && !rest.empty()) return std::nullopt;
    factor = std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  constexpr double kMost = 9e18;
  return amount * factor > kMost ? std::nullopt : std::optional(static_cast<std::int64_t>(amount * factor));
}

std::optional<std::int64_t> seconds_from_text(std::string_view text) {
  constexpr std::string_view kUnits = "dhms";
  constexpr std::int64_t kSeconds[] = {86400, 3600, 60, 1};
  constexpr std::int64_t kMost = std::int64_t{100} * 366 * 86400;
  std::int64_t total = 0;
  std::size_t next_unit = 0;  // units before it were given or passed
  const auto skip_spaces = [&] {
    while (text.starts_with(' ')) text.remove_prefix(1);
  };
  const bool is_empty = text.empty();
  while (!text.empty()) {
    std::int64_t amount = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
    if (error != std::errc{} || amount < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    skip_spaces();
    std::size_t unit = kUnits.size() - 1;
    if (!text.empty()) {
      unit = kUnits.find(static_cast<char>(std::tolower(static_cast<unsigned char>(text.front()))));
      if (unit == std::string_view::npos) return std::nullopt;
      text.remove_prefix(1);
      skip_spaces();
    } else if (next_unit != 0) {
      return std::nullopt;  // "1h30": of what?
    }
    if (unit < next_unit || amount > kMost / kSeconds[unit]) return std::nullopt;
    next_unit = unit + 1;
    total += amount * kSeconds[unit];
  }
  return is_empty || total > kMost ? std::nullopt : std::optional(total);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(std::max(seconds, 0.0), 1e12)));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace tesser
