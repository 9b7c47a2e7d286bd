// The segments of one learner's log (docs/formats/logs.md): which there are, and the one that writes them.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/learner/log_record.h"

namespace tesser::platform {

struct LogSegment {
  std::uint64_t first = 0;  // sequence number of its first line
  std::filesystem::path path;
};

std::filesystem::path segment_path(const std::filesystem::path& log, std::uint64_t first);
// In their order; none when there is no such directory. kFailed when it cannot be read.
Result<std::vector<LogSegment>> log_segments(const std::filesystem::path& log);

// Bytes of the records that stand at the beginning of a segment whole, one number after the other from `first`; the
// last of them in `last`, whose text points into `contents`. Never reads beyond, whatever the bytes are.
std::size_t whole_records(std::string_view contents, std::uint64_t first, std::optional<LogRecord>& last);

// Writes the log of one learner; move-only; one thread at a time. While it lives no other writer opens the log, in
// whatever process, on whatever machine that shares the file system's locks.
class LogWriter {
 public:
  // Makes the directory, takes its lock, and repairs what a dead writer left. kNotFound while another one has the lock.
  static Result<LogWriter> open(std::filesystem::path log, std::int64_t log_bytes);
  LogWriter(LogWriter&& other) noexcept;
  LogWriter& operator=(LogWriter&&) = delete;
  ~LogWriter();

  // How far raw output is in the log.
  int attempt() const { return attempt_; }
  std::uint64_t raw_end() const { return raw_end_; }
  bool continues() const { return continues_; }  // the last line was cut
  std::uint64_t next_sequence() const { return next_; }

  // A line of the command. Kept in memory up to flush(). The record's number is returned.
  std::uint64_t add_line(int attempt, const LinePiece& piece, std::uint64_t raw_end, std::int64_t time);
  // A note of the platform, which also says that raw output up to `raw_end` needs no log.
  void add_note(int attempt, std::string_view text, std::uint64_t raw_end, std::int64_t time);

  // Hands everything to the system. After an error (a full disk) the next call goes on where this one stopped.
  Result<void> flush();
  // flush(), and waits until it is on the disk.
  Result<void> sync();

 private:
  struct Segment {
    std::uint64_t first = 0;
    std::uint64_t bytes = 0;
  };
  // Where in the unwritten bytes a new segment begins.
  struct Beginning {
    std::size_t offset = 0;
    std::uint64_t first = 0;
  };

  LogWriter() = default;
  Result<void> repair();
  Result<void> open_segment(std::uint64_t first);
  Result<void> drop_old();
  Result<void> write_some(std::size_t bytes);
  void add(int attempt, const LogFlags& flags, std::string_view bytes, std::uint64_t raw_end, std::int64_t time);

  std::filesystem::path log_;
  std::uint64_t most_bytes_ = 0;     // of all segments
  std::uint64_t segment_bytes_ = 0;  // after which one is closed
  int lock_ = -1;
  int open_ = -1;                 // the last segment
  std::deque<Segment> segments_;  // on the disk
  std::string unwritten_;         // whole records, but the first without what was written of it
  std::deque<Beginning> beginnings_;
  std::uint64_t fill_ = 0;  // bytes of the last segment once all is written
  std::string text_;        // of the record in hand
  std::uint64_t next_ = 1;
  int attempt_ = 0;
  std::uint64_t raw_end_ = 0;
  bool continues_ = false;
};

}  // namespace tesser::platform
