#include "platform/guardian/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_members.h"
#include "base/json_reader.h"

namespace tesser::platform {
namespace {

constexpr std::array<std::pair<RecordKind, std::string_view>, 10> kKinds{{{RecordKind::kLease, "lease"},
                                                                          {RecordKind::kState, "state"},
                                                                          {RecordKind::kReported, "reported"},
                                                                          {RecordKind::kDeploy, "deploy"},
                                                                          {RecordKind::kDeployed, "deployed"},
                                                                          {RecordKind::kFetched, "fetched"},
                                                                          {RecordKind::kGo, "go"},
                                                                          {RecordKind::kEnd, "end"},
                                                                          {RecordKind::kRemoved, "removed"},
                                                                          {RecordKind::kStored, "stored"}}};
constexpr std::array<std::pair<EndCause, std::string_view>, 8> kCauses{{{EndCause::kDone, "done"},
                                                                        {EndCause::kRestart, "restart"},
                                                                        {EndCause::kRollback, "rollback"},
                                                                        {EndCause::kRequeue, "requeue"},
                                                                        {EndCause::kYield, "yield"},
                                                                        {EndCause::kHalt, "halt"},
                                                                        {EndCause::kDelete, "delete"},
                                                                        {EndCause::kFail, "fail"}}};

constexpr off_t kRoom = 256 << 10;  // bytes for further records

template <typename Names, typename Value>
std::string name_in(const Names& names, Value value) {
  for (const auto& [each, name] : names) {
    if (each == value) {
      return std::string(name);
    }
  }
  return "";
}

template <typename Names, typename Value>
void read_name(JsonReader& reader, std::string_view key, const Names& names, Value& value) {
  const std::string text = reader.string(key);
  for (const auto& [each, name] : names) {
    if (name == text) {
      value = each;
      return;
    }
  }
  reader.fail(fmt::format("'{}' is '{}', which is none of those there are", key, text));
}

bool has_attempt(RecordKind kind) {
  return kind == RecordKind::kState || kind == RecordKind::kDeploy || kind == RecordKind::kDeployed ||
         kind == RecordKind::kGo || kind == RecordKind::kEnd || kind == RecordKind::kRemoved;
}
bool has_reason(RecordKind kind) { return kind == RecordKind::kState || kind == RecordKind::kEnd; }

}  // namespace

std::string to_json(const JournalRecord& record) {
  JsonMembers members;
  members.add("sequence", static_cast<std::int64_t>(record.sequence))
      .add("time", record.time)
      .add("epoch", record.epoch)
      .add("kind", name_in(kKinds, record.kind));
  if (has_attempt(record.kind)) {
    members.add("attempt", record.attempt);
  }
  if (record.kind == RecordKind::kState) {
    members.add("state", std::string(name_of(record.state)));
  }
  if (record.kind == RecordKind::kEnd) {
    members.add("cause", name_in(kCauses, record.cause));
  }
  if (has_reason(record.kind)) {
    members.add("code", record.code).add("reason", record.reason);
  }
  if (record.kind == RecordKind::kDeploy) {
    members.add_text("nodes", json_list(record.nodes));
  }
  if (record.kind == RecordKind::kReported) {
    members.add("up_to", static_cast<std::int64_t>(record.up_to));
  }
  return members.object();
}

Result<JournalRecord> journal_record_from_json(std::string_view line) {
  return read_json_object<JournalRecord>(std::string(line), "record", [](JsonReader& reader, JournalRecord& record) {
    record.sequence = static_cast<std::uint64_t>(reader.integer("sequence", 1));
    record.time = reader.integer("time", 0);
    record.epoch = reader.integer("epoch", 0);
    read_name(reader, "kind", kKinds, record.kind);
    if (has_attempt(record.kind)) {
      record.attempt = static_cast<int>(reader.integer("attempt", 0));
    }
    if (record.kind == RecordKind::kState) {
      const auto state = job_state_named(reader.string("state"));
      if (!state) {
        reader.fail("'state' is no state of a job");
      }
      record.state = state.value_or(JobState::kQueued);
    }
    if (record.kind == RecordKind::kEnd) {
      read_name(reader, "cause", kCauses, record.cause);
    }
    if (has_reason(record.kind)) {
      record.code = reader.string("code");
      record.reason = reader.string("reason");
    }
    if (record.kind == RecordKind::kDeploy) {
      record.nodes = reader.strings("nodes");
    }
    if (record.kind == RecordKind::kReported) {
      record.up_to = static_cast<std::uint64_t>(reader.integer("up_to", 0));
    }
  });
}

Result<std::unique_ptr<Journal>> Journal::open(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return tl::unexpected(file_error(path, "write", errno));
  }
  std::unique_ptr<Journal> journal(new Journal(path, descriptor));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? Result<std::unique_ptr<Journal>>(
                                      not_found(fmt::format("{}: another guardian of this job lives", path.string())))
                                : tl::unexpected(file_error(path, "lock", errno));
  }
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    const bool is_last = end == std::string::npos || end + 1 == text.size();
    auto record = end == std::string::npos
                      ? Result<JournalRecord>(failed("it has no end"))
                      : journal_record_from_json(std::string_view(text).substr(begin, end - begin));
    if (record && record->sequence != journal->records_.size() + 1) {
      record = failed(fmt::format("its sequence is {}", record->sequence));
    }
    if (!record && !is_last) {
      return failed(fmt::format("{}, line {}: the journal is damaged: {}; the job cannot go on", path.string(),
                                journal->records_.size() + 1, record.error().message));
    }
    if (!record) {
      break;
    }
    journal->records_.push_back(std::move(*record));
    begin = end + 1;
  }
  journal->size_ = begin;
  if (begin < text.size() && ::ftruncate(descriptor, static_cast<off_t>(begin)) != 0) {
    return tl::unexpected(file_error(path, "repair", errno));
  }
  // A guardian can still be told to end its job when the disk is full. Where the system cannot keep room, it has none.
  [[maybe_unused]] const int kept = ::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin), kRoom);
  TESSER_RETURN_IF_ERROR(sync_directory(path.parent_path()));
  return journal;
}

Journal::~Journal() { ::close(descriptor_); }

std::vector<JournalRecord> Journal::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

Result<std::uint64_t> Journal::append(JournalRecord record) {
  const std::lock_guard lock(mutex_);
  record.sequence = records_.size() + 1;
  record.time =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  const std::string line = to_json(record) + "\n";
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t wrote = ::write(descriptor_, line.data() + written, line.size() - written);
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote <= 0) {
      break;
    }
    written += static_cast<std::size_t>(wrote);
  }
  const bool is_durable =
      written == line.size() && (record.kind == RecordKind::kReported || ::fdatasync(descriptor_) == 0);
  if (!is_durable) {
    const int reason = errno;
    (void)!::ftruncate(descriptor_, static_cast<off_t>(size_));
    return tl::unexpected(file_error(path_, "write", reason));
  }
  size_ += line.size();
  records_.push_back(std::move(record));
  return records_.back().sequence;
}

JournalSummary summary_of(const std::vector<JournalRecord>& records) {
  JournalSummary summary;
  std::uint64_t reported = 0;
  std::vector<JournalRecord> states;
  for (const JournalRecord& record : records) {
    auto& last = summary.last;
    const bool is_of_last = last && last->number == record.attempt;
    switch (record.kind) {
      case RecordKind::kLease:
        break;
      case RecordKind::kState:
        summary.state = record.state;
        states.push_back(record);
        if (record.state == JobState::kHalted) {
          summary.restarts = 0;
        }
        if (record.state == JobState::kDeploying && !summary.starting_since) {
          summary.starting_since = record.time;
        } else if (record.state != JobState::kDeploying && record.state != JobState::kDownloading) {
          summary.starting_since.reset();
        }
        break;
      case RecordKind::kReported:
        reported = std::max(reported, record.up_to);
        break;
      case RecordKind::kDeploy:
        last = JournalSummary::Attempt{record.attempt, record.nodes, false, false, false, std::nullopt};
        summary.not_removed.push_back(record.attempt);
        break;
      case RecordKind::kDeployed:
        if (is_of_last) {
          last->is_deployed = true;
        }
        break;
      case RecordKind::kFetched:
        summary.has_data = true;
        break;
      case RecordKind::kGo:
        if (is_of_last) {
          last->has_gone = true;
          summary.processing_since = record.time;
        }
        break;
      case RecordKind::kEnd:
        if (is_of_last) {
          last->end = record;
          summary.restarts +=
              record.cause == EndCause::kRestart || (record.cause == EndCause::kRequeue && last->has_gone) ? 1 : 0;
        }
        if (summary.processing_since) {
          summary.processed_microseconds += record.time - *summary.processing_since;
          summary.processing_since.reset();
        }
        break;
      case RecordKind::kRemoved:
        std::erase(summary.not_removed, record.attempt);
        if (is_of_last) {
          last->is_removed = true;
        }
        break;
      case RecordKind::kStored:
        summary.has_stored = true;
        break;
    }
  }
  for (JournalRecord& state : states) {
    if (state.sequence > reported) {
      summary.unreported.push_back(std::move(state));
    }
  }
  return summary;
}

}  // namespace tesser::platform
