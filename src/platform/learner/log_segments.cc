#include "platform/learner/log_segments.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/learner/markers.h"

namespace tesser::platform {
namespace {

constexpr std::string_view kPrefix = "lines-";
constexpr std::size_t kDigits = 20;
constexpr std::uint64_t kMostSegmentBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kLeastSegmentBytes = 4096;

int open_retrying(const std::filesystem::path& path, int flags) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

tl::unexpected<Error> file_failure(const std::filesystem::path& path, std::string_view verb) {
  return tl::unexpected<Error>(file_error(path, verb, errno));
}

}  // namespace

std::filesystem::path segment_path(const std::filesystem::path& log, std::uint64_t first) {
  return log / fmt::format("{}{:020}", kPrefix, first);
}

Result<std::vector<LogSegment>> log_segments(const std::filesystem::path& log) {
  std::vector<LogSegment> segments;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(log, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::uint64_t first = 0;
    if (name.size() == kPrefix.size() + kDigits && name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), first).ptr ==
            name.data() + name.size()) {
      segments.push_back({first, entry->path()});
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return failed(fmt::format("{}: cannot list: {}", log.string(), error.message()));
  }
  std::sort(segments.begin(), segments.end(),
            [](const LogSegment& a, const LogSegment& b) { return a.first < b.first; });
  return segments;
}

std::size_t whole_records(std::string_view contents, std::uint64_t first, std::optional<LogRecord>& last) {
  std::size_t whole = 0;
  while (true) {
    const std::size_t end = contents.find('\n', whole);
    if (end == std::string_view::npos) {
      return whole;
    }
    const std::optional<LogRecord> record = parse_record(contents.substr(whole, end - whole));
    if (!record || record->sequence != first) {
      return whole;
    }
    last = record;
    whole = end + 1;
    ++first;
  }
}

Result<LogWriter> LogWriter::open(std::filesystem::path log, std::int64_t log_bytes) {
  LogWriter writer;
  writer.log_ = std::move(log);
  writer.most_bytes_ = static_cast<std::uint64_t>(std::max<std::int64_t>(log_bytes, 0));
  writer.segment_bytes_ = std::clamp(writer.most_bytes_ / 8, kLeastSegmentBytes, kMostSegmentBytes);
  std::error_code error;
  std::filesystem::create_directories(writer.log_, error);
  if (error) {
    return failed(fmt::format("{}: cannot make this directory: {}", writer.log_.string(), error.message()));
  }
  const std::filesystem::path lock = writer.log_ / "lock";
  writer.lock_ = open_retrying(lock, O_RDWR | O_CREAT);
  if (writer.lock_ < 0) {
    return file_failure(lock, "write");
  }
  if (::flock(writer.lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return not_found(lock.string() + ": another collector holds it");
    }
    return file_failure(lock, "lock");
  }
  TESSER_RETURN_IF_ERROR(writer.repair());
  return writer;
}

LogWriter::LogWriter(LogWriter&& other) noexcept
    : log_(std::move(other.log_)),
      most_bytes_(other.most_bytes_),
      segment_bytes_(other.segment_bytes_),
      lock_(std::exchange(other.lock_, -1)),
      open_(std::exchange(other.open_, -1)),
      segments_(std::move(other.segments_)),
      unwritten_(std::move(other.unwritten_)),
      beginnings_(std::move(other.beginnings_)),
      fill_(other.fill_),
      next_(other.next_),
      attempt_(other.attempt_),
      raw_end_(other.raw_end_),
      continues_(other.continues_) {}

LogWriter::~LogWriter() {
  if (open_ >= 0) {
    ::close(open_);
  }
  if (lock_ >= 0) {
    ::close(lock_);
  }
}

// Finds the last whole record, and cuts off what stands behind it. A segment may have been opened and not written to.
Result<void> LogWriter::repair() {
  TESSER_ASSIGN_OR_RETURN(std::vector<LogSegment> segments, log_segments(log_));
  for (std::size_t index = segments.size(); index-- > 0;) {
    const LogSegment& segment = segments[index];
    TESSER_ASSIGN_OR_RETURN(const std::string contents, read_file(segment.path));
    std::optional<LogRecord> last;
    const std::size_t whole = whole_records(contents, segment.first, last);
    if (last) {
      next_ = last->sequence + 1;
      attempt_ = last->attempt;
      raw_end_ = last->raw_end;
      continues_ = last->flags.cut;
    } else {
      next_ = std::max<std::uint64_t>(segment.first, 1);
    }
    if (whole == 0 && index > 0) {  // its number is given again, but with the record before known
      if (::unlink(segment.path.c_str()) != 0) {
        return file_failure(segment.path, "remove");
      }
      segments.pop_back();
      continue;
    }
    open_ = open_retrying(segment.path, O_WRONLY | O_APPEND);
    if (open_ < 0 || (whole < contents.size() && ::ftruncate(open_, static_cast<off_t>(whole)) != 0)) {
      return file_failure(segment.path, "write");
    }
    fill_ = whole;
    break;
  }
  for (const LogSegment& segment : segments) {
    std::error_code error;
    segments_.push_back({segment.first, std::filesystem::file_size(segment.path, error)});
  }
  return {};
}

void LogWriter::add(int attempt, const LogFlags& flags, std::string_view bytes, std::uint64_t raw_end,
                    std::int64_t time) {
  if (fill_ >= segment_bytes_ || (open_ < 0 && beginnings_.empty())) {
    beginnings_.push_back({unwritten_.size(), next_});
    fill_ = 0;
  }
  LogRecord record{next_, time, attempt, raw_end, flags, {}};
  text_.clear();
  record.flags.escaped = append_text(text_, bytes);
  record.text = text_;
  const std::size_t before = unwritten_.size();
  append_record(unwritten_, record);
  fill_ += unwritten_.size() - before;
  ++next_;
  attempt_ = attempt;
  raw_end_ = raw_end;
}

std::uint64_t LogWriter::add_line(int attempt, const LinePiece& piece, std::uint64_t raw_end, std::int64_t time) {
  add(attempt, piece.flags, piece.bytes, raw_end, time);
  continues_ = piece.flags.cut;
  return next_ - 1;
}

void LogWriter::add_note(int attempt, std::string_view text, std::uint64_t raw_end, std::int64_t time) {
  LogFlags flags;
  flags.note = true;
  flags.cut = continues_ && attempt == attempt_ && raw_end == raw_end_;  // what follows belongs to the line before
  add(attempt, flags, text, raw_end, time);
  continues_ = flags.cut;
}

Result<void> LogWriter::write_some(std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::write(open_, unwritten_.data() + done, bytes - done);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      const int reason = count < 0 ? errno : EIO;
      unwritten_.erase(0, done);
      segments_.back().bytes += done;
      for (Beginning& beginning : beginnings_) {
        beginning.offset -= done;
      }
      return tl::unexpected<Error>(file_error(segment_path(log_, segments_.back().first), "write", reason));
    }
    done += static_cast<std::size_t>(count);
  }
  unwritten_.erase(0, done);
  segments_.back().bytes += done;
  for (Beginning& beginning : beginnings_) {
    beginning.offset -= done;
  }
  return {};
}

Result<void> LogWriter::flush() {
  while (!unwritten_.empty()) {
    if (!beginnings_.empty() && beginnings_.front().offset == 0) {
      TESSER_RETURN_IF_ERROR(open_segment(beginnings_.front().first));
      beginnings_.pop_front();
      TESSER_RETURN_IF_ERROR(drop_old());
    }
    TESSER_RETURN_IF_ERROR(write_some(beginnings_.empty() ? unwritten_.size() : beginnings_.front().offset));
  }
  return {};
}

Result<void> LogWriter::sync() {
  TESSER_RETURN_IF_ERROR(flush());
  if (open_ >= 0 && ::fsync(open_) != 0) {
    return file_failure(segment_path(log_, segments_.back().first), "write");
  }
  return sync_directory(log_);
}

Result<void> LogWriter::open_segment(std::uint64_t first) {
  const std::filesystem::path path = segment_path(log_, first);
  const int opened = open_retrying(path, O_WRONLY | O_APPEND | O_CREAT);
  if (opened < 0) {
    return file_failure(path, "write");
  }
  if (open_ >= 0) {
    ::close(open_);
  }
  open_ = opened;
  segments_.push_back({first, 0});
  return {};
}

// Room for the segment that has just been opened.
Result<void> LogWriter::drop_old() {
  std::uint64_t kept = segment_bytes_;
  for (const Segment& segment : segments_) {
    kept += segment.bytes;
  }
  std::uint64_t dropped_bytes = 0;
  const std::uint64_t first = segments_.front().first;
  while (segments_.size() > 1 && kept > most_bytes_) {
    const std::filesystem::path path = segment_path(log_, segments_.front().first);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return file_failure(path, "remove");
    }
    kept -= segments_.front().bytes;
    dropped_bytes += segments_.front().bytes;
    segments_.pop_front();
  }
  if (dropped_bytes > 0) {
    add_note(attempt_,
             fmt::format("tesser: lines {} to {} ({} bytes) have gone: the log of a learner keeps {} bytes, as "
                         "log_bytes in the manifest says",
                         first, segments_.front().first - 1, dropped_bytes, most_bytes_),
             raw_end_, microseconds_since_1970());
  }
  return {};
}

}  // namespace tesser::platform
