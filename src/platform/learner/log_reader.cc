#include "platform/learner/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/learner/log_segments.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
constexpr std::size_t kLongestRecord = 4 * kLongestLine + 256;
constexpr std::size_t kPageBytes = std::size_t{8} << 20;
// Read at a time, of one learner's log alone and of each of several.
constexpr std::size_t kLinesOfOne = 16'384;
constexpr std::size_t kLinesOfEach = 256;
constexpr std::size_t kMostLearners = std::size_t{1} << 20;

// Reads up to `bytes` from a place into `buffer`, fewer at the end of the file.
Result<void> read_at(int file, std::uint64_t offset, std::size_t bytes, std::string& buffer,
                     const std::filesystem::path& path) {
  buffer.resize(bytes);
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::pread(file, buffer.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return tl::unexpected<Error>(file_error(path, "read", errno));
    }
    if (count == 0) {
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  buffer.resize(done);
  return {};
}

}  // namespace

Result<LogCursor> LogCursor::parse(std::string_view text) {
  LogCursor cursor;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    std::array<std::uint64_t, 3> numbers{};
    const char* at = entry.data();
    const char* const end = at + entry.size();
    bool is_one = true;
    for (std::size_t index = 0; index < numbers.size() && is_one; ++index) {
      const auto [next, error] = std::from_chars(at, end, numbers[index]);
      is_one = error == std::errc() && (index + 1 < numbers.size() ? next < end && *next == ':' : next == end);
      at = next + 1;
    }
    if (!is_one || numbers[0] > std::numeric_limits<int>::max() || numbers[1] == 0 ||
        numbers[2] > std::numeric_limits<std::int64_t>::max() || cursor.places_.size() >= kMostLearners) {
      return invalid_input(fmt::format("'{}' is no cursor of a log; give back one that a log's answer had, or none",
                                       entry.substr(0, 60)));
    }
    cursor.set(static_cast<int>(numbers[0]), {numbers[1], numbers[2]});
  }
  return cursor;
}

std::string LogCursor::text() const {
  std::string text;
  for (const auto& [learner, place] : places_) {
    text += fmt::format("{}{}:{}:{}", text.empty() ? "" : ",", learner, place.sequence, place.offset);
  }
  return text;
}

LogCursor::Place LogCursor::place(int learner) const {
  const auto found = places_.find(learner);
  return found != places_.end() ? found->second : Place{};
}

// The log of one learner.
class LogReader::Learner {
 public:
  Learner(int number, std::filesystem::path log) : number_(number), log_(std::move(log)) {}
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;
  ~Learner() { close(); }

  // Appends lines from the place on, which moves behind them, and where each of them begins.
  Result<void> read(LogCursor::Place& place, std::size_t limit, std::vector<LogLine>& lines,
                    std::vector<LogCursor::Place>& begins, std::vector<MissedLines>& missed);
  bool has_more(LogCursor::Place place);
  // Number of the next line that will be written.
  Result<std::uint64_t> next_sequence();

 private:
  Result<bool> locate(LogCursor::Place& place, std::vector<MissedLines>& missed);
  Result<bool> open(const LogSegment& segment);
  Result<bool> open_next(std::uint64_t sequence);
  Result<bool> stands_at(const LogCursor::Place& place);
  void take(const LogRecord& record, std::vector<LogLine>& lines);
  // Whether rotation has taken the open segment: then it is complete, and the next one may be gone as well.
  bool is_unlinked() const {
    struct stat status {};
    return ::fstat(file_, &status) == 0 && status.st_nlink == 0;
  }
  void close() {
    if (file_ >= 0) {
      ::close(std::exchange(file_, -1));
    }
  }

  int number_;
  std::filesystem::path log_;
  int file_ = -1;
  LogSegment segment_;            // which is open
  LogCursor::Place known_{0, 0};  // a place that is right in it
  std::string buffer_;
};

Result<bool> LogReader::Learner::open(const LogSegment& segment) {
  const int file = ::open(segment.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    if (errno == ENOENT) {
      return false;
    }
    return tl::unexpected<Error>(file_error(segment.path, "read", errno));
  }
  close();
  file_ = file;
  segment_ = segment;
  return true;
}

// The segment that begins with a line, if there is one already.
Result<bool> LogReader::Learner::open_next(std::uint64_t sequence) {
  if (sequence == segment_.first) {
    return false;
  }
  return open({sequence, segment_path(log_, sequence)});
}

// Whether the place is right in the open segment: what stands before it is the line before.
Result<bool> LogReader::Learner::stands_at(const LogCursor::Place& place) {
  if (place == known_ || place.offset == 0) {
    return place == known_ || place.sequence == segment_.first;
  }
  for (const std::size_t most : {std::size_t{4096}, kLongestRecord}) {
    const std::size_t bytes = std::min<std::uint64_t>(place.offset, most);
    TESSER_RETURN_IF_ERROR(read_at(file_, place.offset - bytes, bytes, buffer_, segment_.path));
    if (buffer_.size() < bytes || buffer_.back() != '\n') {
      return false;
    }
    buffer_.pop_back();
    const std::size_t before = buffer_.rfind('\n');
    if (before == std::string::npos && bytes < place.offset) {
      continue;
    }
    const std::string_view line = std::string_view(buffer_).substr(before == std::string::npos ? 0 : before + 1);
    const std::optional<LogRecord> record = parse_record(line);
    return record && record->sequence + 1 == place.sequence;
  }
  return false;
}

// Opens the segment in which the line stands or will stand, and makes the place's offset right. False: no log yet.
Result<bool> LogReader::Learner::locate(LogCursor::Place& place, std::vector<MissedLines>& missed) {
  if (file_ >= 0 && place.sequence >= segment_.first) {
    TESSER_ASSIGN_OR_RETURN(const bool is_right, stands_at(place));
    if (is_right) {
      return true;
    }
  }
  for (int attempt = 0; attempt < 100; ++attempt) {  // segments may go while they are looked at
    TESSER_ASSIGN_OR_RETURN(const std::vector<LogSegment> segments, log_segments(log_));
    if (segments.empty()) {
      return false;
    }
    auto found = std::upper_bound(segments.begin(), segments.end(), place.sequence,
                                  [](std::uint64_t sequence, const LogSegment& each) { return sequence < each.first; });
    const bool has_gone = found == segments.begin();
    found -= has_gone ? 0 : 1;
    TESSER_ASSIGN_OR_RETURN(const bool is_open, open(*found));
    if (!is_open) {
      continue;
    }
    if (has_gone) {
      missed.push_back({number_, place.sequence, found->first - place.sequence});
      place = {found->first, 0};
    }
    known_ = {0, 0};
    TESSER_ASSIGN_OR_RETURN(const bool is_right, stands_at(place));
    if (!is_right) {  // read() passes over the lines before
      place.offset = 0;
    }
    return true;
  }
  return failed(fmt::format("{}: segments go faster than they can be opened; read again", log_.string()));
}

void LogReader::Learner::take(const LogRecord& record, std::vector<LogLine>& lines) {
  LogLine& line = lines.emplace_back();
  line.learner = number_;
  line.attempt = record.attempt;
  line.sequence = record.sequence;
  line.time = record.time;
  line.is_note = record.flags.note;
  line.is_cut = record.flags.cut;
  line.ends_with_return = record.flags.returned;
  append_text(line.text, record.text);  // whoever wrote into the file: what leaves here is UTF-8
}

Result<void> LogReader::Learner::read(LogCursor::Place& place, std::size_t limit, std::vector<LogLine>& lines,
                                      std::vector<LogCursor::Place>& begins, std::vector<MissedLines>& missed) {
  TESSER_ASSIGN_OR_RETURN(const bool has_log, locate(place, missed));
  if (!has_log) {
    return {};
  }
  const std::size_t most = lines.size() + limit;
  std::size_t chunk = std::min(kChunkBytes, std::max<std::size_t>(limit, 16) * 256);
  bool is_damaged = false;
  while (lines.size() < most) {
    if (Result<void> is_read = read_at(file_, place.offset, chunk, buffer_, segment_.path); !is_read) {
      close();  // the next call looks for it anew: a file system of another machine forgets what was removed
      return is_read;
    }
    const std::string_view contents = buffer_;
    std::size_t at = 0;
    while (lines.size() < most) {
      const std::size_t end = contents.find('\n', at);
      if (end == std::string_view::npos) {
        break;
      }
      const std::optional<LogRecord> record = parse_record(contents.substr(at, end - at));
      const std::uint64_t begin = place.offset + at;
      at = end + 1;
      is_damaged = is_damaged || !record;
      if (!record || record->sequence < place.sequence) {
        continue;
      }
      if (record->sequence > place.sequence) {
        missed.push_back({number_, place.sequence, record->sequence - place.sequence});
      }
      take(*record, lines);
      begins.push_back({record->sequence, begin});
      place.sequence = record->sequence + 1;
    }
    place.offset += at;
    if (at > 0) {
      continue;
    }
    if (contents.size() == chunk) {
      if (chunk < kLongestRecord) {
        chunk = kLongestRecord;
      } else {  // no record is so long
        is_damaged = true;
        place.offset += chunk;
      }
      continue;
    }
    const bool has_gone = is_unlinked();  // asked before its successor, which goes later
    TESSER_ASSIGN_OR_RETURN(bool has_next, open_next(place.sequence));
    if (!has_next && (is_damaged || has_gone)) {
      TESSER_ASSIGN_OR_RETURN(const std::vector<LogSegment> segments, log_segments(log_));
      for (const LogSegment& each : segments) {
        if (each.first > place.sequence && !has_next) {
          TESSER_ASSIGN_OR_RETURN(has_next, open(each));
        }
      }
    }
    if (!has_next) {
      break;
    }
    place.offset = 0;
  }
  known_ = place;
  return {};
}

bool LogReader::Learner::has_more(LogCursor::Place place) {
  std::vector<MissedLines> missed;
  const Result<bool> has_log = locate(place, missed);
  if (!has_log || !*has_log) {
    return !has_log;  // read() says what is wrong
  }
  constexpr std::size_t kLooked = 4096;
  if (!read_at(file_, place.offset, kLooked, buffer_, segment_.path) || buffer_.size() == kLooked ||
      buffer_.find('\n') != std::string::npos) {
    return true;
  }
  return is_unlinked() ||
         (place.sequence != segment_.first && ::access(segment_path(log_, place.sequence).c_str(), F_OK) == 0);
}

Result<std::uint64_t> LogReader::Learner::next_sequence() {
  LogCursor::Place place{std::numeric_limits<std::int64_t>::max(), 0};
  std::vector<MissedLines> missed;
  TESSER_ASSIGN_OR_RETURN(const bool has_log, locate(place, missed));
  if (!has_log) {
    return 1;
  }
  TESSER_ASSIGN_OR_RETURN(const std::string contents, read_file(segment_.path));
  std::optional<LogRecord> last;
  whole_records(contents, segment_.first, last);
  return last ? last->sequence + 1 : segment_.first;
}

LogReader::LogReader(Volume volume, std::optional<int> learner) : volume_(std::move(volume)), only_(learner) {}
LogReader::LogReader(LogReader&&) noexcept = default;
LogReader& LogReader::operator=(LogReader&&) noexcept = default;
LogReader::~LogReader() = default;

void LogReader::find_learners() {
  if (only_) {
    if (learners_.empty()) {
      learners_.emplace(*only_, std::make_unique<Learner>(*only_, volume_.log(*only_)));
    }
    return;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator entry(volume_.log(0).parent_path(), error), none; !error && entry != none;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int learner = -1;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), learner);
    if (wrong == std::errc() && end == name.data() + name.size() && learner >= 0 && !learners_.contains(learner)) {
      learners_.emplace(learner, std::make_unique<Learner>(learner, entry->path()));
    }
  }
}

Result<LogPage> LogReader::read(const LogCursor& cursor, std::size_t limit) {
  find_learners();
  LogPage page{{}, {}, cursor};
  // What each learner has next; only lines that are given move the cursor.
  struct Source {
    Learner* learner = nullptr;
    int number = 0;
    LogCursor::Place end;  // of the lines in hand
    std::vector<LogLine> lines;
    std::vector<LogCursor::Place> begins;
    std::vector<MissedLines> missed;
    std::size_t next = 0;
    bool is_empty() const { return next == lines.size(); }
  };
  std::vector<Source> sources;
  const std::size_t at_a_time = learners_.size() == 1 ? kLinesOfOne : kLinesOfEach;
  const auto refill = [&](Source& source) -> Result<void> {
    source.lines.clear();
    source.missed.clear();
    source.next = 0;
    source.begins.clear();
    return source.learner->read(source.end, std::min(at_a_time, limit - page.lines.size()), source.lines, source.begins,
                                source.missed);
  };
  for (auto& [number, learner] : learners_) {
    Source& source = sources.emplace_back();
    source.learner = learner.get();
    source.number = number;
    source.end = cursor.place(number);
    TESSER_RETURN_IF_ERROR(refill(source));
  }
  std::size_t bytes = 0;
  while (page.lines.size() < limit && bytes < kPageBytes) {
    Source* first = nullptr;
    for (Source& source : sources) {
      if (!source.is_empty() && (first == nullptr || source.lines[source.next].time < first->lines[first->next].time)) {
        first = &source;
      }
    }
    if (first == nullptr) {
      break;
    }
    LogLine& line = first->lines[first->next++];
    bytes += line.text.size() + 64;
    page.lines.push_back(std::move(line));
    if (first->is_empty() && page.lines.size() < limit) {
      page.cursor.set(first->number, first->end);
      page.missed.insert(page.missed.end(), first->missed.begin(), first->missed.end());
      TESSER_RETURN_IF_ERROR(refill(*first));
    }
  }
  for (const Source& source : sources) {
    if (source.is_empty()) {
      page.cursor.set(source.number, source.end);
      page.missed.insert(page.missed.end(), source.missed.begin(), source.missed.end());
    } else if (source.next > 0) {
      const LogCursor::Place next = source.begins[source.next];
      page.cursor.set(source.number, next);
      for (const MissedLines& each : source.missed) {
        if (each.first < next.sequence) {
          page.missed.push_back(each);
        }
      }
    }
  }
  return page;
}

bool LogReader::has_more(const LogCursor& cursor) {
  find_learners();
  return std::any_of(learners_.begin(), learners_.end(),
                     [&](auto& each) { return each.second->has_more(cursor.place(each.first)); });
}

Result<LogPage> LogReader::read_waiting(const LogCursor& cursor, std::size_t limit, std::chrono::milliseconds wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  std::chrono::milliseconds pause{2};
  while (true) {
    if (has_more(cursor)) {
      TESSER_ASSIGN_OR_RETURN(LogPage page, read(cursor, limit));
      if (!page.lines.empty() || !page.missed.empty()) {
        return page;
      }
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return LogPage{{}, {}, cursor};
    }
    std::this_thread::sleep_for(std::min(left, pause));
    pause = std::min(pause * 2, std::chrono::milliseconds{50});
  }
}

Result<LogCursor> LogReader::tail(std::uint64_t lines) {
  find_learners();
  LogCursor cursor;
  for (auto& [number, learner] : learners_) {
    TESSER_ASSIGN_OR_RETURN(const std::uint64_t next, learner->next_sequence());
    cursor.set(number, {next > lines ? next - lines : 1, 0});
  }
  return cursor;
}

}  // namespace tesser::platform
