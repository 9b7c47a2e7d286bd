// Reads a job's log (docs/formats/logs.md): one learner's or all of them merged, from any cursor, across rotation and
// attempts, without loss or duplicate.
//
// A reader keeps open what it reads and remembers nothing that a cursor does not say: any reader goes on from any
// other's cursor. One thread at a time per object; any number of readers beside the collector that writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/volume.h"

namespace tesser::platform {

struct LogLine {
  int learner = 0;
  int attempt = 0;
  std::uint64_t sequence = 0;     // from 1, of this learner
  std::int64_t time = 0;          // microseconds since 1970
  bool is_note = false;           // of the platform, not of the command
  bool is_cut = false;            // goes on in the learner's next line
  bool ends_with_return = false;  // a progress bar's: the next line may be written over it
  std::string text;               // UTF-8 without line feeds
};

// The place of a reader in each learner's log.
class LogCursor {
 public:
  struct Place {
    std::uint64_t sequence = 1;  // of the next line
    std::uint64_t offset = 0;    // a guess of where it stands in its segment
    bool operator==(const Place&) const = default;
  };

  LogCursor() = default;  // the beginning
  // kInvalidInput when it is no cursor.
  static Result<LogCursor> parse(std::string_view text);
  std::string text() const;

  Place place(int learner) const;
  void set(int learner, Place place) { places_[learner] = place; }

 private:
  std::map<int, Place> places_;
};

// Lines that had gone, by rotation, before they were read.
struct MissedLines {
  int learner = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

struct LogPage {
  std::vector<LogLine> lines;
  std::vector<MissedLines> missed;
  LogCursor cursor;  // to go on from
};

class LogReader {
 public:
  // `learner`: of one, else of all there are, also of those that begin to write later.
  LogReader(Volume volume, std::optional<int> learner);
  LogReader(LogReader&&) noexcept;
  LogReader& operator=(LogReader&&) noexcept;
  ~LogReader();

  // At most `limit` lines (and about 8 MiB) from the cursor on; none when there are no more yet. A learner without a
  // log has no lines. Never waits for a line. kFailed when a file cannot be read or is damaged, which says where.
  Result<LogPage> read(const LogCursor& cursor, std::size_t limit);

  // Whether read() would give something: two system calls a learner, so one thread can watch over many waiting
  // clients.
  bool has_more(const LogCursor& cursor);

  // read(), after waiting in this thread up to `wait` for the first line.
  Result<LogPage> read_waiting(const LogCursor& cursor, std::size_t limit, std::chrono::milliseconds wait);

  // The cursor of the last `lines` lines of each learner: for "--tail".
  Result<LogCursor> tail(std::uint64_t lines);

 private:
  class Learner;
  Volume volume_;
  std::optional<int> only_;
  std::map<int, std::unique_ptr<Learner>> learners_;
  void find_learners();
};

}  // namespace tesser::platform
