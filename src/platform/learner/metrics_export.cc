#include <cmath>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "platform/learner/metrics_reader.h"

namespace tesser::platform {
namespace {

constexpr std::uint64_t kLookedBack = std::uint64_t{1} << 20;
constexpr std::size_t kMetricsAtATime = 10'000;

// As Prometheus' text format has it: backslash, quote and line feed are escaped.
std::string label(std::string_view value) {
  std::string text;
  for (const char character : value) {
    if (character == '\\' || character == '"') {
      text += '\\';
    }
    text += character == '\n' ? "\\n" : std::string(1, character);
  }
  return text;
}

std::string value_text(double value) { return std::isnan(value) ? "NaN" : fmt::format("{}", value); }

}  // namespace

Result<JobFigures> last_figures(const std::string& job, const Volume& volume) {
  JobFigures figures;
  figures.job = job;
  std::map<std::pair<int, std::string>, Metric> last;
  std::error_code error;
  std::string cursor;
  for (std::filesystem::directory_iterator entry(volume.metrics(0).parent_path(), error), none; !error && entry != none;
       entry.increment(error)) {
    const std::uintmax_t bytes = entry->file_size(error);
    if (!error && bytes > kLookedBack && entry->path().extension() == ".jsonl") {
      cursor += fmt::format("{}{}:{}", cursor.empty() ? "" : ",", entry->path().stem().string(), bytes - kLookedBack);
    }
  }
  MetricsReader reader(volume, std::nullopt);
  while (true) {
    TESSER_ASSIGN_OR_RETURN(MetricsPage page, reader.read(cursor, kMetricsAtATime));
    if (page.metrics.empty()) {
      break;
    }
    cursor = std::move(page.cursor);
    for (Metric& each : page.metrics) {
      last[{each.learner, each.name}] = each;
    }
  }
  for (auto& [key, metric] : last) {
    figures.last.push_back(std::move(metric));
  }
  if (Result<Progress> progress = read_progress(volume)) {
    figures.progress = *progress;
  } else if (progress.error().code != ErrorCode::kNotFound) {
    return tl::unexpected<Error>(progress.error());
  }
  return figures;
}

std::string prometheus_text(const std::vector<JobFigures>& jobs) {
  std::string text;
  const auto begin = [&](std::string_view name, std::string_view help) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name, help);
  };
  const auto of_progress = [&](std::string_view name, std::string_view help, const auto& value_of) {
    begin(name, help);
    for (const JobFigures& job : jobs) {
      if (const std::optional<double> value = job.progress ? value_of(*job.progress) : std::nullopt) {
        text += fmt::format("{}{{job=\"{}\"}} {}\n", name, label(job.job), value_text(*value));
      }
    }
  };
  const auto of_metrics = [&](std::string_view name, std::string_view help, const auto& value_of) {
    begin(name, help);
    for (const JobFigures& job : jobs) {
      for (const Metric& each : job.last) {
        text += fmt::format("{}{{job=\"{}\",learner=\"{}\",name=\"{}\"}} {}\n", name, label(job.job), each.learner,
                            label(each.name), value_of(each));
      }
    }
  };
  of_metrics("tesser_metric", "Last value of a metric of a job's learner.",
             [](const Metric& each) { return value_text(each.value); });
  of_metrics("tesser_metric_step", "Step of that value.",
             [](const Metric& each) { return fmt::format("{}", each.step); });
  of_progress("tesser_job_step", "Steps done.",
              [](const Progress& progress) -> std::optional<double> { return static_cast<double>(progress.step); });
  of_progress("tesser_job_steps", "Steps in all.", [](const Progress& progress) -> std::optional<double> {
    return progress.steps ? std::optional(static_cast<double>(*progress.steps)) : std::nullopt;
  });
  of_progress("tesser_job_seconds_left", "Seconds until the last step, at the speed of the last minute.",
              [](const Progress& progress) { return progress.seconds_left; });
  return text;
}

}  // namespace tesser::platform
