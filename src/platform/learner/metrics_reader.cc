#include "platform/learner/metrics_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_reader.h"
#include "platform/learner/metrics_writer.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

using Offsets = std::map<int, std::uint64_t>;  // by learner

Result<Offsets> parse_cursor(std::string_view text) {
  Offsets offsets;
  const std::string_view whole = text;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    int learner = -1;
    std::uint64_t offset = 0;
    const char* const end = entry.data() + entry.size();
    const auto first = std::from_chars(entry.data(), end, learner);
    if (first.ec != std::errc() || learner < 0 || first.ptr == end || *first.ptr != ':' ||
        std::from_chars(first.ptr + 1, end, offset).ptr != end || first.ptr + 1 == end ||
        offset > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return invalid_input(fmt::format(
          "'{}' is no cursor of metrics; give back one that an answer with metrics had, or none", whole.substr(0, 60)));
    }
    offsets[learner] = offset;
  }
  return offsets;
}

std::string cursor_text(const Offsets& offsets) {
  std::string text;
  for (const auto& [learner, offset] : offsets) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", learner, offset);
  }
  return text;
}

// A chunk of a file, without the first line where that begins before the offset; empty at the end. Moves the offset to
// the beginning of a line.
Result<std::string> chunk_at(const std::filesystem::path& path, std::uint64_t& offset) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    if (errno == ENOENT) {
      return std::string();
    }
    return tl::unexpected<Error>(file_error(path, "read", errno));
  }
  const std::uint64_t begin = offset > 0 ? offset - 1 : 0;
  std::string chunk(kChunkBytes, '\0');
  const ssize_t count = ::pread(file, chunk.data(), chunk.size(), static_cast<off_t>(begin));
  const int reason = errno;
  ::close(file);
  if (count < 0) {
    return tl::unexpected<Error>(file_error(path, "read", reason));
  }
  chunk.resize(static_cast<std::size_t>(count));
  if (offset > 0) {
    const std::size_t end = chunk.find('\n');
    const std::size_t passed = end == std::string::npos ? chunk.size() : end + 1;
    chunk.erase(0, passed);
    offset = std::max(offset, begin + (end == std::string::npos ? 0 : passed));
  }
  return chunk;
}

Metric metric_of(int learner, MetricLine& line) {
  return {learner, line.step, line.time, std::move(line.name), line.value};
}

}  // namespace

MetricsReader::MetricsReader(Volume volume, std::optional<int> learner, std::string name)
    : volume_(std::move(volume)), only_(learner), name_(std::move(name)) {}

std::vector<int> MetricsReader::learners() const {
  if (only_) {
    return {*only_};
  }
  std::vector<int> learners;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(volume_.metrics(0).parent_path(), error), none;
       !error && entry != none; entry.increment(error)) {
    const std::string name = entry->path().stem().string();
    int learner = -1;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), learner);
    if (wrong == std::errc() && end == name.data() + name.size() && learner >= 0 &&
        entry->path().extension() == ".jsonl") {
      learners.push_back(learner);
    }
  }
  std::sort(learners.begin(), learners.end());
  return learners;
}

Result<MetricsPage> MetricsReader::read(const std::string& cursor, std::size_t limit) {
  TESSER_ASSIGN_OR_RETURN(Offsets offsets, parse_cursor(cursor));
  MetricsPage page;
  for (const int learner : learners()) {
    std::uint64_t& offset = offsets[learner];
    while (page.metrics.size() < limit) {
      TESSER_ASSIGN_OR_RETURN(const std::string chunk, chunk_at(volume_.metrics(learner), offset));
      const std::string_view contents = chunk;
      std::size_t at = 0;
      while (page.metrics.size() < limit) {
        const std::size_t end = contents.find('\n', at);
        if (end == std::string_view::npos) {
          break;
        }
        if (auto line = parse_metric_line(contents.substr(at, end - at));
            line && (name_.empty() || line->name == name_)) {
          page.metrics.push_back(metric_of(learner, *line));
        }
        at = end + 1;
      }
      offset += at;
      if (at == 0) {
        break;
      }
    }
  }
  page.cursor = cursor_text(offsets);
  return page;
}

bool MetricsReader::has_more(const std::string& cursor) {
  const Result<Offsets> offsets = parse_cursor(cursor);
  if (!offsets) {
    return true;  // read() says what is wrong
  }
  for (const int learner : learners()) {
    const auto found = offsets->find(learner);
    struct stat status {};
    if (::stat(volume_.metrics(learner).c_str(), &status) == 0 &&
        static_cast<std::uint64_t>(status.st_size) > (found != offsets->end() ? found->second : 0)) {
      return true;
    }
  }
  return false;
}

Result<MetricsPage> MetricsReader::read_waiting(const std::string& cursor, std::size_t limit,
                                                std::chrono::milliseconds wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  std::chrono::milliseconds pause{5};
  MetricsPage page{{}, cursor};
  while (true) {
    if (has_more(page.cursor)) {
      TESSER_ASSIGN_OR_RETURN(page, read(page.cursor, limit));
      if (!page.metrics.empty()) {
        return page;
      }
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return page;
    }
    std::this_thread::sleep_for(std::min(left, pause));
    pause = std::min(pause * 2, std::chrono::milliseconds{100});
  }
}

Result<Progress> read_progress(const Volume& volume) {
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(volume.progress(), std::uint64_t{1} << 20));
  const Result<Json> json = parse_json(text);
  if (!json) {
    return invalid_input(fmt::format("{}: {}", volume.progress().string(), json.error().message));
  }
  JsonReader reader(*json, volume.progress().string());
  Progress progress;
  progress.attempt = static_cast<int>(reader.integer("attempt", 0));
  progress.step = reader.integer("step", 0);
  progress.steps = reader.optional_integer("steps", 0);
  if (const Json* left = json->find("seconds_left"); left != nullptr && !left->is_null()) {
    progress.seconds_left = reader.number("seconds_left");
  }
  progress.time = reader.integer("time", 0);
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return progress;
}

}  // namespace tesser::platform
