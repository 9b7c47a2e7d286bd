// Any bytes as a guardian's journal: refused, or records from which a summary is made, after which another record can
// be appended and read again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "platform/guardian/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace fs = std::filesystem;
  using namespace tesser::platform;
  static const fs::path root = [] {
    char name[] = "/dev/shm/tesser-journal-fuzzer-XXXXXX";
    return fs::path(::mkdtemp(name));
  }();
  static const int at_end = std::atexit([] { fs::remove_all(root); });
  (void)at_end;
  const fs::path file = root / "journal.jsonl";
  fs::remove(file);
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  std::size_t count = 0;
  {
    auto journal = Journal::open(file);
    if (!journal) {
      return 0;
    }
    count = (*journal)->records().size();
    summary_of((*journal)->records());
    JournalRecord record;
    record.kind = RecordKind::kLease;
    record.epoch = 1;
    const auto appended = (*journal)->append(record);
    TESSER_CHECK(appended.has_value(), appended.error().message);
  }
  const auto again = Journal::open(file);
  TESSER_CHECK(again.has_value(), again.error().message);
  TESSER_CHECK((*again)->records().size() == count + 1, std::to_string((*again)->records().size()));
  return 0;
}
