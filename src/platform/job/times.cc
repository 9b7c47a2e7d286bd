#include "platform/job/times.h"

#include <chrono>
#include <cstdio>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

using std::chrono::microseconds;
using Days = std::chrono::sys_days;

}  // namespace

std::int64_t now_microseconds() {
  return std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string time_text(std::int64_t count) {
  const std::chrono::sys_time<microseconds> time{microseconds(count)};
  const Days day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count(), clock.subseconds().count());
}

std::optional<std::int64_t> time_from_text(std::string_view text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hours = 0;
  int minutes = 0;
  int seconds = 0;
  int micros = 0;
  int end = 0;
  const std::string copy(text);
  if (copy.size() != 27 ||
      std::sscanf(copy.c_str(), "%4d-%2u-%2uT%2d:%2d:%2d.%6dZ%n", &year, &month, &day, &hours, &minutes, &seconds,
                  &micros, &end) != 7 ||
      end != 27) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (!date.ok() || hours > 23 || minutes > 59 || seconds > 60 || hours < 0 || minutes < 0 || seconds < 0 ||
      micros < 0) {
    return std::nullopt;
  }
  return std::chrono::duration_cast<microseconds>(Days(date).time_since_epoch()).count() +
         (std::int64_t{hours} * 3600 + minutes * 60 + seconds) * 1'000'000 + micros;
}

}  // namespace tesser::platform
