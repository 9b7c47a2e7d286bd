#include "platform/learner/metrics_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_members.h"
#include "platform/learner/log_record.h"
#include "platform/learner/markers.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kSecondsOfSpeed = 60;
constexpr std::int64_t kSecond = 1'000'000;

bool take(std::string_view& from, std::string_view expected) {
  if (!from.starts_with(expected)) {
    return false;
  }
  from.remove_prefix(expected.size());
  return true;
}

template <typename Number>
bool take_number(std::string_view& from, Number& number) {
  const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), number);
  from.remove_prefix(static_cast<std::size_t>(end - from.data()));
  return error == std::errc();
}

bool take_string(std::string_view& from, std::string& string) {
  if (!from.starts_with('"')) {
    return false;
  }
  std::size_t end = 1;
  bool is_plain = true;
  for (; end < from.size() && from[end] != '"'; ++end) {
    if (static_cast<unsigned char>(from[end]) < 0x20) {
      return false;
    }
    if (from[end] == '\\') {
      is_plain = false;
      ++end;
    }
  }
  if (end >= from.size()) {
    return false;
  }
  if (is_plain) {
    string = from.substr(1, end - 1);
    if (!is_utf8(string)) {
      return false;
    }
  } else {
    const Result<Json> json = parse_json(from.substr(0, end + 1));
    if (!json || json->string() == nullptr) {
      return false;
    }
    string = *json->string();
  }
  from.remove_prefix(end + 1);
  return true;
}

}  // namespace

void append_metric_line(std::string& to, const MetricLine& line) {
  fmt::format_to(std::back_inserter(to), "{{\"step\":{},\"time\":{},\"name\":", line.step, line.time);
  append_json_string(to, line.name);
  to += ",\"value\":";
  if (std::isfinite(line.value)) {
    append_json_float(to, line.value);
  } else {
    to += "null";
  }
  to += ",\"source\":";
  append_json_string(to, line.source);
  fmt::format_to(std::back_inserter(to), ",\"position\":{}}}\n", line.position);
}

std::optional<MetricLine> parse_metric_line(std::string_view rest) {
  MetricLine line;
  if (!take(rest, "{\"step\":") || !take_number(rest, line.step) || !take(rest, ",\"time\":") ||
      !take_number(rest, line.time) || !take(rest, ",\"name\":") || !take_string(rest, line.name) ||
      !take(rest, ",\"value\":")) {
    return std::nullopt;
  }
  if (take(rest, "null")) {
    line.value = std::nan("");
  } else if (!take_number(rest, line.value)) {
    return std::nullopt;
  }
  if (!take(rest, ",\"source\":") || !take_string(rest, line.source) || !take(rest, ",\"position\":") ||
      !take_number(rest, line.position) || rest != "}") {
    return std::nullopt;
  }
  return line;
}

Result<MetricsWriter> MetricsWriter::open(std::filesystem::path path, std::int64_t most_bytes) {
  MetricsWriter writer;
  writer.path_ = std::move(path);
  writer.most_bytes_ = static_cast<std::uint64_t>(std::max<std::int64_t>(most_bytes, 0));
  std::error_code error;
  std::filesystem::create_directories(writer.path_.parent_path(), error);
  if (error) {
    return failed(
        fmt::format("{}: cannot make this directory: {}", writer.path_.parent_path().string(), error.message()));
  }
  writer.file_ = ::open(writer.path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (writer.file_ < 0) {
    return tl::unexpected<Error>(file_error(writer.path_, "write", errno));
  }
  TESSER_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(writer.path_));
  const std::string_view contents(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::size_t whole = 0;
  while (true) {
    const std::size_t end = contents.find('\n', whole);
    if (end == std::string_view::npos) {
      break;
    }
    if (const auto line = parse_metric_line(contents.substr(whole, end - whole))) {
      Source& source = writer.sources_[line->source];
      source.count = source.position == line->position ? source.count + 1 : 1;
      source.position = line->position;
      writer.last_step_[line->name] = line->step;
    }
    whole = end + 1;
  }
  writer.bytes_ = whole;
  if (whole < contents.size() && ::ftruncate(writer.file_, static_cast<off_t>(whole)) != 0) {
    return tl::unexpected<Error>(file_error(writer.path_, "write", errno));
  }
  return writer;
}

MetricsWriter::MetricsWriter(MetricsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      bytes_(other.bytes_),
      most_bytes_(other.most_bytes_),
      is_full_(other.is_full_),
      unwritten_(std::move(other.unwritten_)),
      sources_(std::move(other.sources_)),
      last_step_(std::move(other.last_step_)) {}

MetricsWriter::~MetricsWriter() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

std::uint64_t MetricsWriter::position(const std::string& source) const {
  const auto found = sources_.find(source);
  return found != sources_.end() ? found->second.position : 0;
}

void MetricsWriter::add(const std::string& source, std::uint64_t position, const FoundMetrics& found,
                        std::int64_t time) {
  Source& known = sources_[source];
  if (position < known.position) {
    return;
  }
  // Of a record that was being written when its writer died, those that are there come first.
  const std::size_t there = position == known.position ? known.count : 0;
  known = {position, std::max(there, found.values.size())};
  for (std::size_t index = there; index < found.values.size(); ++index) {
    const auto& [name, value] = found.values[index];
    const auto last = last_step_.find(name);
    MetricLine line{found.step.value_or(last != last_step_.end() ? last->second + 1 : 1),
                    found.time.value_or(time),
                    name,
                    value,
                    source,
                    position};
    const std::size_t before = unwritten_.size();
    append_metric_line(unwritten_, line);
    const std::size_t added = unwritten_.size() - before;
    if (bytes_ + added > most_bytes_) {
      unwritten_.resize(before);
      is_full_ = true;
      return;
    }
    bytes_ += added;
    last_step_[name] = line.step;
  }
}

Result<void> MetricsWriter::flush() {
  std::size_t done = 0;
  while (done < unwritten_.size()) {
    const ssize_t count = ::write(file_, unwritten_.data() + done, unwritten_.size() - done);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      const int reason = count < 0 ? errno : EIO;
      unwritten_.erase(0, done);
      return tl::unexpected<Error>(file_error(path_, "write", reason));
    }
    done += static_cast<std::size_t>(count);
  }
  unwritten_.clear();
  return {};
}

Result<void> MetricsWriter::sync() {
  TESSER_RETURN_IF_ERROR(flush());
  if (::fsync(file_) != 0) {
    return tl::unexpected<Error>(file_error(path_, "write", errno));
  }
  return {};
}

ProgressWriter::ProgressWriter(const Volume& volume, int attempt) : path_(volume.progress()) {
  if (const Result<Progress> before = read_progress(volume)) {
    progress_ = *before;
    progress_.seconds_left.reset();
  }
  progress_.attempt = attempt;
}

void ProgressWriter::saw(const FoundMetrics& found, std::int64_t time) {
  if (found.steps) {
    progress_.steps = found.steps;
  }
  if (found.step) {
    if (seen_.empty() || *found.step < progress_.step) {
      seen_.clear();
      seen_.emplace_back(time, *found.step);
    } else if (time - seen_.back().first >= kSecond) {
      seen_.emplace_back(time, *found.step);
      if (seen_.size() > kSecondsOfSpeed) {
        seen_.pop_front();
      }
    }
    progress_.step = *found.step;
    progress_.time = time;
  }
  has_changed_ = has_changed_ || found.step || found.steps;
}

Result<void> ProgressWriter::write(bool now) {
  const std::int64_t time = microseconds_since_1970();
  if (!has_changed_ || (!now && time - written_ < kSecond)) {
    return {};
  }
  progress_.seconds_left.reset();
  if (progress_.steps && !seen_.empty()) {
    const auto [began, first] = seen_.front();
    if (progress_.step >= *progress_.steps) {
      progress_.seconds_left = 0;
    } else if (progress_.step > first && progress_.time > began) {
      progress_.seconds_left = static_cast<double>(progress_.time - began) / kSecond /
                               static_cast<double>(progress_.step - first) *
                               static_cast<double>(*progress_.steps - progress_.step);
    }
  }
  TESSER_RETURN_IF_ERROR(write_file_atomically(path_, JsonMembers()
                                                          .add("attempt", progress_.attempt)
                                                          .add("step", progress_.step)
                                                          .add("steps", progress_.steps)
                                                          .add("seconds_left", progress_.seconds_left)
                                                          .add("time", progress_.time)
                                                          .object()));
  written_ = time;
  has_changed_ = false;
  return {};
}

}  // namespace tesser::platform
