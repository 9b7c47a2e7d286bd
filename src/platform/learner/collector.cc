#include "platform/learner/collector.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/learner/log_reader.h"
#include "platform/learner/markers.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::uint64_t kGiveBackBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kLeastBacklog = std::uint64_t{1} << 20;
// Metrics of so many bytes of log may be missing after a collector's death: of one chunk, whose bytes may be escaped.
constexpr std::uint64_t kLookedAgain = 6 * kChunkBytes;
constexpr std::int64_t kFilesEvery = 250'000;  // microseconds between two looks at files with metrics

}  // namespace

CollectorOptions collector_options(const Volume& volume, const Manifest& manifest, int rank, int attempt) {
  CollectorOptions options{volume, rank, attempt, manifest.log_bytes, manifest.metrics};
  if (manifest.program && manifest.metrics.empty()) {
    options.metrics.push_back({"tesser", "", ""});
  }
  return options;
}

Result<Collector> Collector::open(CollectorOptions options) {
  TESSER_ASSIGN_OR_RETURN(LogWriter writer, LogWriter::open(options.volume.log(options.rank), options.log_bytes));
  TESSER_ASSIGN_OR_RETURN(MetricsWriter metrics,
                          MetricsWriter::open(options.volume.metrics(options.rank), options.log_bytes));
  Collector collector(std::move(options), std::move(writer), std::move(metrics));
  TESSER_RETURN_IF_ERROR(collector.begin());
  return collector;
}

Collector::Collector(CollectorOptions options, LogWriter writer, MetricsWriter metrics)
    : options_(std::move(options)), writer_(std::move(writer)), metrics_(std::move(metrics)) {}

Collector::Collector(Collector&& other) noexcept
    : options_(std::move(other.options_)),
      writer_(std::move(other.writer_)),
      metrics_(std::move(other.metrics_)),
      progress_(std::move(other.progress_)),
      files_(std::move(other.files_)),
      extractors_(std::move(other.extractors_)),
      found_(std::move(other.found_)),
      chunk_(std::move(other.chunk_)),
      raw_(std::exchange(other.raw_, -1)),
      raw_attempt_(other.raw_attempt_),
      seen_size_(other.seen_size_),
      given_back_(other.given_back_),
      can_give_back_(other.can_give_back_),
      files_read_(other.files_read_),
      said_full_(other.said_full_) {}

Collector::~Collector() { close_raw(); }

Result<void> Collector::begin() {
  if (options_.rank == 0) {
    // What is left of a dead learner's output belongs to the last attempt there was.
    const std::vector<int> attempts = raw_attempts();
    const int last = std::max(writer_.attempt(), attempts.empty() ? 0 : attempts.back());
    progress_ = std::make_unique<ProgressWriter>(options_.volume, std::min(options_.attempt, std::max(last, 1)));
  }
  // The directory of results is shared: rank 0 alone looks there.
  std::vector<std::filesystem::path> roots{options_.volume.log_files(options_.rank)};
  if (options_.rank == 0) {
    roots.push_back(options_.volume.results());
  }
  // The note's place: a collector may be moved, so it says it when it is asked to write.
  files_ = std::make_unique<MetricFiles>(std::move(roots));
  for (std::size_t index = 0; index < options_.metrics.size(); ++index) {
    const MetricExtractor& each = options_.metrics[index];
    if (each.type == "tensorboard" || !each.path.empty()) {
      TESSER_RETURN_IF_ERROR(files_->add(static_cast<int>(index), each));
    } else {
      TESSER_ASSIGN_OR_RETURN(auto made, make_line_extractor(each));
      extractors_.push_back({std::to_string(index), std::move(made)});
    }
  }
  return find_again();
}

// Looks once more at the last lines: their metrics may be missing.
Result<void> Collector::find_again() {
  if (extractors_.empty()) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(const std::vector<LogSegment> segments, log_segments(options_.volume.log(options_.rank)));
  std::uint64_t bytes = 0;
  std::uint64_t first = 0;
  for (auto segment = segments.rbegin(); segment != segments.rend() && bytes < kLookedAgain; ++segment) {
    std::error_code error;
    bytes += std::filesystem::file_size(segment->path, error);
    first = segment->first;
  }
  if (first == 0) {
    return {};
  }
  LogReader reader(options_.volume, options_.rank);
  LogCursor cursor;
  cursor.set(options_.rank, {first, 0});
  while (true) {
    TESSER_ASSIGN_OR_RETURN(LogPage page, reader.read(cursor, 10'000));
    if (page.lines.empty()) {
      return {};
    }
    for (LogLine& line : page.lines) {
      if (!line.is_note) {
        extract({line.sequence, line.time, std::move(line.text)});
      }
    }
    cursor = page.cursor;
  }
}

void Collector::extract(const FoundLine& line) {
  for (const LogExtractor& each : extractors_) {
    if (const auto found = each.extractor->find(line.text)) {
      metrics_.add(each.source, line.sequence, *found, line.time);
      if (progress_) {
        progress_->saw(*found, found->time.value_or(line.time));
      }
    }
  }
}

std::vector<int> Collector::raw_attempts() const {
  std::vector<int> attempts;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(options_.volume.log(options_.rank), error), none;
       !error && entry != none; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int attempt = 0;
    if (name.starts_with("raw-") &&
        std::from_chars(name.data() + 4, name.data() + name.size(), attempt).ptr == name.data() + name.size() &&
        attempt > 0 && attempt <= options_.attempt) {
      attempts.push_back(attempt);
    }
  }
  std::sort(attempts.begin(), attempts.end());
  return attempts;
}

Result<void> Collector::open_raw(int attempt) {
  if (raw_ >= 0 && raw_attempt_ == attempt) {
    return {};
  }
  close_raw();
  const std::filesystem::path path = options_.volume.raw_log(options_.rank, attempt);
  raw_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (raw_ < 0) {
    return tl::unexpected<Error>(file_error(path, "read", errno));
  }
  raw_attempt_ = attempt;
  seen_size_ = 0;
  given_back_ = 0;
  return {};
}

void Collector::close_raw() {
  if (raw_ >= 0) {
    ::close(std::exchange(raw_, -1));
  }
}

Result<bool> Collector::collect(bool at_end) {
  TESSER_RETURN_IF_ERROR(write());
  bool took = false;
  for (const int attempt : raw_attempts()) {
    if (attempt >= writer_.attempt()) {
      const bool is_complete = at_end || attempt < options_.attempt;
      TESSER_RETURN_IF_ERROR(open_raw(attempt));
      while (true) {
        TESSER_ASSIGN_OR_RETURN(const bool more, drain(attempt, is_complete));
        if (!more) {
          break;
        }
        took = true;
      }
    }
    if (attempt < options_.attempt) {
      close_raw();
      ::unlink(options_.volume.raw_log(options_.rank, attempt).c_str());
    }
  }
  const std::int64_t now = microseconds_since_1970();
  if (!files_->is_empty() && (at_end || now - files_read_ >= kFilesEvery)) {
    files_read_ = now;
    for (const std::string& note : files_->read(metrics_, [&](const FoundMetrics&found, std::int64_t time) {
           if (progress_) {
             progress_->saw(found, time);
           }
         })) {
      writer_.add_note(std::max(writer_.attempt(), 1), note, writer_.raw_end(), now);
    }
  }
  TESSER_RETURN_IF_ERROR(write());
  if (progress_) {
    TESSER_RETURN_IF_ERROR(progress_->write(at_end));
  }
  return took;
}

// One chunk. False when there is no line in what is left.
Result<bool> Collector::drain(int attempt, bool at_end) {
  struct stat status {};
  if (::fstat(raw_, &status) != 0) {
    return tl::unexpected<Error>(file_error(options_.volume.raw_log(options_.rank, attempt), "read", errno));
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t consumed = writer_.attempt() == attempt ? writer_.raw_end() : 0;
  if (consumed >= size || (size == seen_size_ && !at_end)) {
    return false;
  }
  pass_over(size, consumed);
  chunk_.resize(std::min<std::uint64_t>(kChunkBytes, size - consumed));
  const ssize_t count = ::pread(raw_, chunk_.data(), chunk_.size(), static_cast<off_t>(consumed));
  if (count < 0) {
    if (errno == EINTR) {
      return true;
    }
    return tl::unexpected<Error>(file_error(options_.volume.raw_log(options_.rank, attempt), "read", errno));
  }
  std::string_view rest(chunk_.data(), static_cast<std::size_t>(count));
  const bool is_end = consumed + rest.size() == size;
  const std::int64_t now = microseconds_since_1970();
  bool took = false;
  while (true) {
    const bool continues = writer_.attempt() == attempt && writer_.continues();
    const auto piece = next_line(rest, at_end && is_end, continues);
    if (!piece) {
      break;
    }
    consumed += piece->consumed;
    const std::uint64_t sequence = writer_.add_line(attempt, *piece, consumed, now);
    if (!extractors_.empty()) {
      FoundLine& line = found_.emplace_back(FoundLine{sequence, now, {}});
      append_text(line.text, piece->bytes);
    }
    rest.remove_prefix(piece->consumed);
    took = true;
  }
  if (is_end) {
    seen_size_ = size;
  }
  TESSER_RETURN_IF_ERROR(write());
  give_back(consumed);
  return took;
}

// A command that writes faster than it can be taken, for long, loses its oldest output: rotation would take it anyway.
void Collector::pass_over(std::uint64_t size, std::uint64_t& consumed) {
  const std::uint64_t most =
      std::max(static_cast<std::uint64_t>(std::max<std::int64_t>(options_.log_bytes, 0)), kLeastBacklog);
  if (size - consumed <= most) {
    return;
  }
  std::uint64_t next = size - most / 2;
  std::string after(kLongestLine, '\0');
  const ssize_t count = ::pread(raw_, after.data(), after.size(), static_cast<off_t>(next));
  const std::size_t end = count > 0 ? after.find('\n') : std::string::npos;
  next += end < static_cast<std::size_t>(std::max<ssize_t>(count, 0)) ? end + 1 : 0;
  writer_.add_note(raw_attempt_,
                   fmt::format("tesser: {} bytes of output are passed over: it comes faster than it can be taken, and "
                               "the log keeps no more than {} bytes",
                               next - consumed, options_.log_bytes),
                   next, microseconds_since_1970());
  consumed = next;
}

void Collector::give_back(std::uint64_t consumed) {
  const std::uint64_t end = consumed / kPageBytes * kPageBytes;
  if (!can_give_back_ || end < given_back_ + kGiveBackBytes) {
    return;
  }
  can_give_back_ = ::fallocate(raw_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(given_back_),
                               static_cast<off_t>(end - given_back_)) == 0;
  given_back_ = end;
}

// Lines first, then their metrics: these can be found again.
Result<void> Collector::write() {
  TESSER_RETURN_IF_ERROR(writer_.flush());
  for (const FoundLine& line : found_) {
    extract(line);
  }
  found_.clear();
  TESSER_RETURN_IF_ERROR(metrics_.flush());
  if (metrics_.is_full() && !said_full_) {
    said_full_ = true;
    writer_.add_note(std::max(writer_.attempt(), 1),
                     fmt::format("tesser: no more metrics of this learner are kept: {} bytes of them are there, as "
                                 "log_bytes in the manifest says",
                                 options_.log_bytes),
                     writer_.raw_end(), microseconds_since_1970());
    return writer_.flush();
  }
  return {};
}

Result<void> Collector::finish() {
  TESSER_RETURN_IF_ERROR(write());
  TESSER_RETURN_IF_ERROR(writer_.sync());
  TESSER_RETURN_IF_ERROR(metrics_.sync());
  if (progress_) {
    TESSER_RETURN_IF_ERROR(progress_->write(true));
  }
  close_raw();
  ::unlink(options_.volume.raw_log(options_.rank, options_.attempt).c_str());
  return {};
}

Result<std::uint64_t> collect_remaining(const Volume& volume, const Manifest& manifest, int rank,
                                        std::chrono::milliseconds patience) {
  constexpr int kAllAttempts = 1 << 30;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    Result<Collector> collector = Collector::open(collector_options(volume, manifest, rank, kAllAttempts));
    if (collector) {
      TESSER_RETURN_IF_ERROR(collector->collect(true));
      TESSER_RETURN_IF_ERROR(collector->finish());
      return collector->lines();
    }
    if (collector.error().code != ErrorCode::kNotFound || std::chrono::steady_clock::now() > deadline) {
      return tl::unexpected<Error>(collector.error());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace tesser::platform
