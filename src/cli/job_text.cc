#include "cli/job_text.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include <fmt/format.h>

#include "base/amount_text.h"

namespace tesser::cli {
namespace {

// Characters, for columns of UTF-8.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

}  // namespace

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      text += i + 1 < row.size() ? std::string(widths[i] - width_of(row[i]) + 2, ' ') : "\n";
    }
  }
  return text;
}

std::optional<double> seconds_of(std::string_view time) {
  std::tm parts{};
  double seconds = 0;
  if (std::sscanf(std::string(time).c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
                  &parts.tm_hour, &parts.tm_min, &seconds) != 6) {
    return std::nullopt;
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return static_cast<double>(::timegm(&parts)) + seconds;
}

std::string age_text(std::string_view time) {
  const auto then = seconds_of(time);
  if (!then) {
    return "-";
  }
  const auto age = static_cast<std::int64_t>(std::max(0.0, static_cast<double>(std::time(nullptr)) - *then));
  return age < 120      ? fmt::format("{}s", age)
         : age < 7200   ? fmt::format("{}m", age / 60)
         : age < 172800 ? fmt::format("{}h", age / 3600)
                        : fmt::format("{}d", age / 86400);
}

std::string resources_text(const platform::Resources& resources) {
  std::string text = fmt::format("{:g} cpu{}", static_cast<double>(resources.millicpus) / 1000,
                                 resources.millicpus == 1000 ? "" : "s");
  if (resources.memory_bytes > 0) {
    text += ", " + bytes_text(resources.memory_bytes);
  }
  for (const auto& [type, count] : resources.accelerators) {
    text += fmt::format(", {} {}", count, type);
  }
  return text;
}

std::string progress_text(const platform::JobProgress& progress) {
  if (!progress.step) {
    return "";
  }
  if (!progress.steps || *progress.steps <= 0) {
    return fmt::format("step {}", *progress.step);
  }
  constexpr int kWidth = 30;
  const double done = std::clamp(static_cast<double>(*progress.step) / static_cast<double>(*progress.steps), 0.0, 1.0);
  const int filled = static_cast<int>(done * kWidth);
  std::string text = fmt::format("[{}{}] {:3.0f}%  {}/{}", std::string(filled, '#'), std::string(kWidth - filled, ' '),
                                 done * 100, *progress.step, *progress.steps);
  if (progress.seconds_left) {
    text += fmt::format("  {} left", duration_text(*progress.seconds_left));
  }
  return text;
}

std::string safe_line(const std::string& text, bool is_terminal) {
  if (!is_terminal) {
    return text;
  }
  std::string safe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0x1b && i + 1 < text.size() && text[i + 1] == '[') {
      const std::size_t end = text.find_first_not_of("0123456789;", i + 2);
      if (end != std::string::npos && text[end] == 'm') {  // a colour
        safe += text.substr(i, end - i + 1);
        i = end;
        continue;
      }
    }
    // The second byte of C1 control characters in UTF-8 is below 0xa0 after 0xc2.
    const bool is_c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) {
      ++i;
    }
    const bool is_control = is_c1 || (byte < 0x20 && byte != '\t') || byte == 0x7f;
    safe += is_control ? '?' : text[i];
  }
  return safe.find('\x1b') == std::string::npos ? safe : safe + "\x1b[0m";
}

}  // namespace tesser::cli
