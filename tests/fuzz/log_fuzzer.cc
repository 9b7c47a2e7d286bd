// Any bytes as a segment of a log and as a command's output: records and lines that lie inside them and come in order,
// a reader that ends, and a log that a writer repairs.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "platform/learner/log_reader.h"
#include "platform/learner/log_segments.h"

namespace {

using namespace tesser;
using namespace tesser::platform;

void check_lines(std::string_view output) {
  std::size_t consumed = 0;
  bool continues = false;
  while (const auto piece = next_line(output.substr(consumed), true, continues)) {
    TESSER_CHECK(piece->consumed > 0 && piece->bytes.size() <= piece->consumed, "a piece that is not there");
    TESSER_CHECK(piece->bytes.size() <= kLongestLine, std::to_string(piece->bytes.size()));
    consumed += piece->consumed;
    continues = piece->flags.cut;
    std::string text;
    LogRecord record{1, 2, 3, consumed, piece->flags, {}};
    record.flags.escaped = append_text(text, piece->bytes);
    record.text = text;
    std::string bytes;
    append_record(bytes, record);
    bytes.pop_back();
    TESSER_CHECK(parse_record(bytes) == record, bytes);
  }
  // What is left is at most an empty line that a carriage return ends.
  TESSER_CHECK(output.find_first_not_of('\r', consumed) == std::string_view::npos, std::to_string(consumed));
}

void check_segment(const std::filesystem::path& root, const std::string& contents) {
  const Volume volume(root);
  std::filesystem::create_directories(volume.log(0));
  std::ofstream(segment_path(volume.log(0), 1), std::ios::binary | std::ios::trunc) << contents;
  LogReader reader(volume, 0);
  LogCursor cursor;
  std::uint64_t next = 1;
  while (true) {
    const Result<LogPage> page = reader.read(cursor, 7);
    TESSER_CHECK(page.has_value(), page.error().message);
    if (page->lines.empty()) {
      break;
    }
    for (const LogLine& line : page->lines) {
      TESSER_CHECK(line.sequence >= next, std::to_string(line.sequence));
      next = line.sequence + 1;
    }
    cursor = page->cursor;
  }
  std::optional<LogRecord> last;
  const std::size_t whole = whole_records(contents, 1, last);
  {
    Result<LogWriter> writer = LogWriter::open(volume.log(0), 1 << 20);
    TESSER_CHECK(writer.has_value(), writer.error().message);
    TESSER_CHECK(writer->next_sequence() == (last ? last->sequence + 1 : 1), std::to_string(writer->next_sequence()));
    writer->add_line(1, {"after", 0, {}}, 1, 1);
    TESSER_CHECK(writer->flush().has_value(), "not written");
  }
  LogReader again(volume, 0);
  LogCursor end;
  end.set(0, {last ? last->sequence + 1 : 1, whole});
  const Result<LogPage> page = again.read(end, 2);
  TESSER_CHECK(page && page->lines.size() == 1 && page->lines[0].text == "after", "the line is not there");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path root = [] {
    std::string name = (std::filesystem::temp_directory_path() / "tesser-log-fuzz-XXXXXX").string();
    static std::filesystem::path made;
    made = ::mkdtemp(name.data());
    std::atexit([] { std::filesystem::remove_all(made); });
    return made;
  }();
  const std::string contents(reinterpret_cast<const char*>(data), size);
  check_lines(contents);
  check_segment(root, contents);
  const Result<LogCursor> cursor = LogCursor::parse(contents);
  TESSER_CHECK(!cursor || LogCursor::parse(cursor->text())->text() == cursor->text(), contents);
  return 0;
}
