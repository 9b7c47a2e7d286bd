#include "cli/amount_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tesser::cli {

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

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(std::max(seconds, 0.0), 1e12)));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace tesser::cli
