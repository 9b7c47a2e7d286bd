// The journal of a guardian (docs/formats/journal.md): what it is about to do and what it did.
//
// Any thread, except that one at a time appends what depends on what it has read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/job_state.h"
#include "platform/job/resources.h"

namespace tesser::platform {

enum class RecordKind : std::uint8_t {
  kLease,
  kState,
  kReported,
  kDeploy,
  kDeployed,
  kFetched,
  kGo,
  kEnd,
  kRemoved,
  kStored,
};

enum class EndCause : std::uint8_t { kDone, kRestart, kRollback, kRequeue, kYield, kHalt, kDelete, kFail };

// Only members of its kind mean something.
struct JournalRecord {
  RecordKind kind = RecordKind::kLease;
  std::uint64_t sequence = 0;  // given by append()
  std::int64_t time = 0;       // microseconds since 1970; given by append()
  std::int64_t epoch = 0;
  int attempt = 0;
  JobState state = JobState::kQueued;
  EndCause cause = EndCause::kDone;
  std::string code;
  std::string reason;
  Placement nodes;
  std::uint64_t up_to = 0;
};

std::string to_json(const JournalRecord& record);
Result<JournalRecord> journal_record_from_json(std::string_view line);

class Journal {
 public:
  // Makes the file where there is none, takes its lock and cuts off a torn last line. kNotFound while another process
  // has the lock, kFailed when the file is damaged or the disk refuses.
  static Result<std::unique_ptr<Journal>> open(const std::filesystem::path& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // What was there at open(), and what was appended since.
  std::vector<JournalRecord> records() const;

  // Gives the record its sequence and time, and returns the sequence. On the disk when this returns, but for kReported.
  // After an error (a full disk) nothing of it is there, and the call may be repeated.
  Result<std::uint64_t> append(JournalRecord record);

 private:
  Journal(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  const std::filesystem::path path_;
  const int descriptor_;
  mutable std::mutex mutex_;
  std::vector<JournalRecord> records_;
  std::uint64_t size_ = 0;
};

// What the records say about the job (docs/formats/journal.md, reading it after a death).
struct JournalSummary {
  // The attempt of the last `deploy`.
  struct Attempt {
    int number = 0;
    Placement nodes;
    bool is_deployed = false;
    bool has_gone = false;  // has a `go`
    bool is_removed = false;
    std::optional<JournalRecord> end;
    bool is_alive() const { return is_deployed && !end; }
  };

  std::optional<JobState> state;          // the last one
  std::vector<JournalRecord> unreported;  // states, in order
  std::optional<Attempt> last;
  std::vector<int> not_removed;  // attempts that may have left something in the engine
  int restarts = 0;              // used
  bool has_data = false;
  bool has_stored = false;
  std::int64_t processed_microseconds = 0;       // of attempts that have ended
  std::optional<std::int64_t> processing_since;  // `go` of the living one
  std::optional<std::int64_t> starting_since;    // since when the job tries to come to PROCESSING
};

JournalSummary summary_of(const std::vector<JournalRecord>& records);

}  // namespace tesser::platform
