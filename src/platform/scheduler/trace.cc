#include "platform/scheduler/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

#include <fmt/format.h>

#include "platform/scheduler/gang_placement.h"

namespace tesser::platform {
namespace {

// Larger jobs and later times are mistakes of the file.
constexpr double kMostSeconds = 1e12;
constexpr double kMostAccelerators = 1e6;

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  for (;;) {
    const std::size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) {
      return cells;
    }
    line.remove_prefix(comma + 1);
  }
}

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number) ? std::optional(number)
                                                                                           : std::nullopt;
}

}  // namespace

Result<std::vector<TraceJob>> read_trace(std::string_view csv, const std::string& where) {
  std::vector<TraceJob> jobs;
  std::map<std::string_view, std::size_t> columns;
  std::size_t width = 0;
  for (std::size_t line_number = 1; !csv.empty(); ++line_number) {
    const std::size_t end = csv.find('\n');
    const std::string_view line = csv.substr(0, end);
    csv.remove_prefix(end == std::string_view::npos ? csv.size() : end + 1);
    const std::vector<std::string_view> cells = cells_of(line);
    if (line_number == 1) {
      width = cells.size();
      for (std::size_t i = 0; i < cells.size(); ++i) {
        columns.emplace(cells[i], i);
      }
      for (const char* needed : {"app_id", "submit_time", "num_jobs"}) {
        if (columns.count(needed) == 0) {
          return invalid_input(
              fmt::format("{}, line 1: there is no column {}; a trace has app_id, submit_time, num_jobs "
                          "and service or run_time",
                          where, needed));
        }
      }
      if (columns.count("service") + columns.count("run_time") == 0) {
        return invalid_input(fmt::format("{}, line 1: there is neither a column service nor run_time", where));
      }
      continue;
    }
    if (line.empty()) {
      continue;
    }
    if (cells.size() != width) {
      return invalid_input(
          fmt::format("{}, line {}: {} cells, and the header has {}", where, line_number, cells.size(), width));
    }
    const auto take = [&](const char* column, double least, double most) -> Result<double> {
      const auto number = number_of(cells[columns.at(column)]);
      if (!number || *number < least || *number > most) {
        return invalid_input(fmt::format("{}, line {}: {} is '{}', expected a number from {} to {:.0f}", where,
                                         line_number, column, cells[columns.at(column)], least, most));
      }
      return *number;
    };
    TraceJob job;
    job.id = std::string(cells[columns.at("app_id")]);
    TESSER_ASSIGN_OR_RETURN(job.submitted, take("submit_time", 0, kMostSeconds));
    TESSER_ASSIGN_OR_RETURN(const double accelerators, take("num_jobs", 1, kMostAccelerators));
    job.accelerators = static_cast<std::int64_t>(accelerators);
    if (columns.count("run_time") != 0) {
      TESSER_ASSIGN_OR_RETURN(job.run_seconds, take("run_time", 0, kMostSeconds));
    } else {
      TESSER_ASSIGN_OR_RETURN(const double service, take("service", 0, kMostSeconds * kMostAccelerators));
      job.run_seconds = service / static_cast<double>(job.accelerators);
    }
    if (columns.count("team") != 0) {
      job.team = std::string(cells[columns.at("team")]);
    }
    if (columns.count("priority") != 0) {
      TESSER_ASSIGN_OR_RETURN(const double priority, take("priority", 0, 100));
      job.priority = static_cast<int>(priority);
    }
    jobs.push_back(std::move(job));
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submitted < b.submitted; });
  for (std::size_t i = 0; i < jobs.size(); ++i) {  // identifiers of a file need not differ
    jobs[i].id = fmt::format("{}#{}", jobs[i].id, i);
  }
  return jobs;
}

std::vector<TraceJob> make_trace(const SyntheticTrace& settings) {
  struct Size {
    double up_to;
    std::int64_t accelerators;
  };
  constexpr std::array<Size, 8> kSizes = {
      {{0.60, 1}, {0.70, 2}, {0.82, 4}, {0.93, 8}, {0.97, 16}, {0.99, 32}, {0.998, 64}, {1.0, 128}}};
  // Log-normal: the median, and the ratio of mean to median of Philly, exp(sigma^2 / 2).
  constexpr double kMedianSeconds = 874;
  constexpr double kMeanSeconds = 18006;
  const double sigma = std::sqrt(2 * std::log(kMeanSeconds / kMedianSeconds));
  RandomNumbers random(settings.seed);
  std::vector<TraceJob> jobs(settings.jobs);
  double work = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    TraceJob& job = jobs[i];
    job.id = fmt::format("job{}", i);
    const double drawn = random.fraction();
    job.accelerators = std::find_if(kSizes.begin(), kSizes.end() - 1, [&](const Size& size) {
                         return drawn < size.up_to;
                       })->accelerators;
    const double normal =
        std::sqrt(-2 * std::log(1 - random.fraction())) * std::cos(2 * std::numbers::pi * random.fraction());
    job.run_seconds = std::clamp(kMedianSeconds * std::exp(sigma * normal), 1.0, 60.0 * 86400);
    job.team = fmt::format("team{}", random.next() % static_cast<std::uint64_t>(std::max(settings.teams, 1)));
    job.priority = static_cast<int>(random.next() % 3) * 25 + 25;
    work += job.run_seconds * static_cast<double>(job.accelerators);
  }
  const double span = work / (static_cast<double>(settings.accelerators) * settings.load);
  double time = 0;
  for (TraceJob& job : jobs) {  // a Poisson process
    time += -std::log(1 - random.fraction()) * span / static_cast<double>(jobs.size());
    job.submitted = time;
  }
  return jobs;
}

}  // namespace tesser::platform
