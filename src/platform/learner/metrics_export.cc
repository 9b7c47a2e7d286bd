#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "platform/learner/event_file.h"
#include "platform/learner/metrics_reader.h"
#include "platform/learner/metrics_writer.h"

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

Result<void> export_tensorboard(const Volume& volume, const std::filesystem::path& directory) {
  MetricsReader reader(volume, std::nullopt);
  std::map<int, AtomicFile> files;
  std::string cursor;
  while (true) {
    TESSER_ASSIGN_OR_RETURN(const MetricsPage page, reader.read(cursor, kMetricsAtATime));
    if (page.metrics.empty()) {
      break;
    }
    cursor = page.cursor;
    std::map<int, std::string> records;
    for (const Metric& each : page.metrics) {
      const double seconds = static_cast<double>(each.time) / 1e6;
      std::string& learner = records[each.learner];
      if (!files.contains(each.learner)) {
        const std::filesystem::path folder = directory / fmt::format("learner-{}", each.learner);
        std::error_code error;
        std::filesystem::create_directories(folder, error);
        if (error) {
          return failed(fmt::format("{}: cannot make this directory: {}", folder.string(), error.message()));
        }
        // TensorBoard takes files with "tfevents" in their names, in the order of the number behind it.
        TESSER_ASSIGN_OR_RETURN(
            AtomicFile file,
            AtomicFile::create(folder / fmt::format("events.out.tfevents.{:010}.tesser", each.time / 1'000'000)));
        files.emplace(each.learner, std::move(file));
        append_tf_record(learner, version_event_bytes(seconds));
      }
      append_tf_record(learner, event_bytes({seconds, each.step, {{each.name, each.value}}}));
    }
    for (const auto& [learner, bytes] : records) {
      TESSER_RETURN_IF_ERROR(files.at(learner).append(bytes));
    }
  }
  for (auto& [learner, file] : files) {
    TESSER_RETURN_IF_ERROR(file.commit());
  }
  return {};
}

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
