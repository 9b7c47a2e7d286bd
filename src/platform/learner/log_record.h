// One record of a learner's log (docs/formats/logs.md, lines), and how raw output is cut into lines.
//
// Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tesser::platform {

struct LogFlags {
  bool cut = false;       // c: the line goes on in the next record
  bool escaped = false;   // b: it is no UTF-8, see append_text()
  bool returned = false;  // r: ended by a carriage return
  bool unended = false;   // e: the command ended within the line
  bool note = false;      // n: of the platform

  bool operator==(const LogFlags&) const = default;
};

struct LogRecord {
  std::uint64_t sequence = 0;
  std::int64_t time = 0;  // microseconds since 1970
  int attempt = 0;
  std::uint64_t raw_end = 0;
  LogFlags flags;
  std::string_view text;

  bool operator==(const LogRecord&) const = default;
};

// Appends the record with its line feed. The text must be as append_text() makes it.
void append_record(std::string& to, const LogRecord& record);
// `line` is a record without its line feed; none when it is not one. The text points into it.
std::optional<LogRecord> parse_record(std::string_view line);

bool is_utf8(std::string_view bytes);
// Appends bytes of a command as a record's text; true when they are no UTF-8 and had to be escaped.
bool append_text(std::string& to, std::string_view bytes);

// A command's line that is longer is cut.
inline constexpr std::size_t kLongestLine = 65'536;

struct LinePiece {
  std::string_view bytes;
  std::size_t consumed = 0;  // bytes of the output up to where the next piece begins
  LogFlags flags;            // cut, returned, unended
};

// The next line, or the next piece of one that is too long, of output that begins with `bytes`; none when it needs more
// of it. `at_end`: nothing will follow. `continues`: the piece before was cut. Depends on nothing but the output, so
// that a collector that reads it again cuts it alike.
std::optional<LinePiece> next_line(std::string_view bytes, bool at_end, bool continues);

}  // namespace tesser::platform
