#include "platform/learner/metric_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "platform/learner/event_file.h"
#include "platform/learner/log_record.h"
#include "platform/learner/markers.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kMostFiles = 1000;
constexpr std::size_t kFirstChunk = std::size_t{256} << 10;
constexpr std::size_t kLargestChunk = (std::size_t{64} << 20) + 64;  // the longest record of an event file
constexpr std::uint64_t kMostBytesAtATime = std::uint64_t{64} << 20;

// What stands in a chunk: metrics of whole records, each with the bytes up to its end.
struct Parsed {
  std::size_t whole = 0;
  bool is_damaged = false;
};

template <typename Take>
Parsed parse_lines(const LineExtractor& lines, std::string_view chunk, const Take& take) {
  Parsed parsed;
  for (std::size_t end; (end = chunk.find('\n', parsed.whole)) != std::string_view::npos; parsed.whole = end + 1) {
    if (const auto found = lines.find(chunk.substr(parsed.whole, end - parsed.whole))) {
      take(end + 1, *found);
    }
  }
  return parsed;
}

template <typename Take>
Parsed parse_events(std::string_view chunk, const Take& take) {
  Parsed parsed;
  while (true) {
    const TfRecord record = next_tf_record(chunk.substr(parsed.whole));
    if (record.outcome != TfRecord::Outcome::kWhole) {
      parsed.is_damaged = record.outcome == TfRecord::Outcome::kDamaged;
      return parsed;
    }
    parsed.whole += record.bytes;
    const auto event = parse_event(record.data);
    if (!event) {
      parsed.is_damaged = true;
      return parsed;
    }
    if (!event->scalars.empty()) {
      FoundMetrics found;
      found.step = event->step;
      if (event->wall_time > 0 && event->wall_time < 1e12) {
        found.time = static_cast<std::int64_t>(event->wall_time * 1e6);
      }
      for (const auto& [tag, value] : event->scalars) {
        std::string name;
        append_text(name, tag);
        found.values.emplace_back(std::move(name), value);
      }
      take(parsed.whole, found);
    }
  }
}

}  // namespace

Result<void> MetricFiles::add(int index, const MetricExtractor& extractor) {
  Extractor made{index, extractor.path.lexically_normal(), nullptr};
  if (made.path.is_absolute() || (!made.path.empty() && *made.path.begin() == "..")) {
    return invalid_input(
        fmt::format("metrics: {}: expected a path below RESULT_DIR or LOG_DIR", extractor.path.string()));
  }
  if (extractor.type != "tensorboard") {
    TESSER_ASSIGN_OR_RETURN(made.lines, make_line_extractor(extractor));
  }
  extractors_.push_back(std::move(made));
  return {};
}

std::vector<std::string> MetricFiles::read(MetricsWriter& writer,
                                           const std::function<void(const FoundMetrics&, std::int64_t)>& found) {
  for (const Extractor& extractor : extractors_) {
    for (const std::filesystem::path& root : roots_) {
      if (extractor.lines) {
        read_file(extractor, root / extractor.path, extractor.path.string(), writer, found);
        continue;
      }
      std::vector<std::filesystem::path> event_files;
      std::error_code error;
      std::filesystem::recursive_directory_iterator entry(root / extractor.path, error);
      for (; !error && entry != std::filesystem::recursive_directory_iterator() && event_files.size() < kMostFiles;
           entry.increment(error)) {
        if (entry->path().filename().string().find("tfevents") != std::string::npos) {
          event_files.push_back(entry->path());
        }
      }
      std::sort(event_files.begin(), event_files.end());  // names begin with their time
      for (const std::filesystem::path& path : event_files) {
        read_file(extractor, path, path.lexically_relative(root).string(), writer, found);
      }
    }
  }
  return std::exchange(notes_, {});
}

void MetricFiles::read_file(const Extractor& extractor, const std::filesystem::path& path, const std::string& name,
                            MetricsWriter& writer,
                            const std::function<void(const FoundMetrics&, std::int64_t)>& found) {
  // No links: a job's metrics are its own files.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) {
    return;
  }
  struct stat status {};
  std::string source_name;
  append_text(source_name, name);
  const std::string source = fmt::format("{}:{}", extractor.index, source_name);
  const bool is_known = files_.contains(source);
  File& file = files_[source];
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return;
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (!is_known) {
    file.offset = writer.position(source);
    file.number = status.st_ino;
  }
  if (size < file.offset || file.number != status.st_ino) {
    file = {0, status.st_ino, false};
    writer.restart(source);
  }
  std::string buffer;
  std::size_t chunk = kFirstChunk;
  const std::uint64_t begin = file.offset;
  while (!file.is_bad && file.offset < size && file.offset - begin < kMostBytesAtATime) {
    buffer.resize(std::min<std::uint64_t>(chunk, size - file.offset));
    const ssize_t count = ::pread(descriptor, buffer.data(), buffer.size(), static_cast<off_t>(file.offset));
    if (count <= 0) {
      break;
    }
    buffer.resize(static_cast<std::size_t>(count));
    const auto take = [&](std::size_t end, const FoundMetrics& metrics) {
      const std::int64_t now = microseconds_since_1970();
      writer.add(source, file.offset + end, metrics, now);
      found(metrics, metrics.time.value_or(now));
    };
    const Parsed parsed = extractor.lines ? parse_lines(*extractor.lines, buffer, take) : parse_events(buffer, take);
    file.offset += parsed.whole;
    if (parsed.is_damaged) {
      file.is_bad = true;
      notes_.push_back(fmt::format("tesser: metrics: {} is damaged at byte {}; what follows there is not read",
                                   source_name, file.offset));
    } else if (parsed.whole == 0) {
      if (buffer.size() < chunk) {
        break;  // the rest of the record has not been written yet
      }
      if (chunk == kLargestChunk) {
        file.is_bad = true;
        notes_.push_back(
            fmt::format("tesser: metrics: {} has a record of more than 64 MiB at byte {}; what follows there is not "
                        "read",
                        source_name, file.offset));
      }
      chunk = std::min(chunk * 8, kLargestChunk);
    }
  }
  ::close(descriptor);
}

}  // namespace tesser::platform
