#include "platform/store/database.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/Savepoint.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include "platform/store/schema.h"

namespace tesser::platform {
namespace {

constexpr int kPatienceMilliseconds = 2000;  // for another program that holds the file's lock
// Pages of 4 KiB that the file has for changes on a full disk; the log has as many, and begins anew long before.
constexpr int kRoomPages = 512;
constexpr int kLogPages = kRoomPages / 4;

}  // namespace

Database::Database(std::filesystem::path file) : file_(std::move(file)) {}
Database::~Database() = default;

std::unique_ptr<SQLite::Database> Database::connect(bool writes) const {
  auto database = std::make_unique<SQLite::Database>(
      file_.string(), writes ? SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE : SQLite::OPEN_READONLY,
      kPatienceMilliseconds);
  database->exec("PRAGMA foreign_keys = ON");
  return database;
}

Result<std::unique_ptr<Database>> Database::open(const std::filesystem::path& file) {
  std::unique_ptr<Database> database(new Database(file));
  try {
    database->writer_ = database->connect(true);
    TESSER_RETURN_IF_ERROR(database->prepare());
    return database;
  } catch (const SQLite::Exception& exception) {
    return tl::unexpected(database->error_of(exception));
  }
}

Result<void> Database::prepare() {
  SQLite::Database& database = *writer_;
  const int version = database.execAndGet("PRAGMA user_version").getInt();
  const int application = database.execAndGet("PRAGMA application_id").getInt();
  const bool is_empty = database.execAndGet("SELECT count(*) FROM sqlite_master").getInt() == 0;
  const int newest = static_cast<int>(schema_steps().size());
  if (!is_empty && application != kStoreApplication) {
    return failed(fmt::format("{}: this is the file of another program and no store of tesser; give another directory",
                              file_.string()));
  }
  if (version > newest) {
    return failed(
        fmt::format("{}: written by a newer tesser (schema {}; this one knows {}); run that one, or restore "
                    "a copy of before",
                    file_.string(), version, newest));
  }
  if (const std::string state = database.execAndGet("PRAGMA quick_check(1)").getString(); state != "ok") {
    return failed(
        fmt::format("{}: the store is damaged ({}); restore a copy, or save what can be read with sqlite3 "
                    "{} .recover",
                    file_.string(), state, file_.string()));
  }
  // Whoever commits waits for the disk: a job that was accepted survives the loss of power, too.
  if (database.execAndGet("PRAGMA journal_mode = WAL").getString() != "wal") {
    return failed(
        fmt::format("{}: this file system has no shared memory for a write-ahead log; give a directory on a "
                    "local disk",
                    file_.string()));
  }
  database.exec("PRAGMA synchronous = FULL");
  for (int step = version; step < newest; ++step) {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    database.exec(std::string(schema_steps()[static_cast<std::size_t>(step)]));
    database.exec(fmt::format("PRAGMA application_id = {}", kStoreApplication));
    database.exec(fmt::format("PRAGMA user_version = {}", step + 1));
    transaction.commit();
  }
  // The log keeps its place on the disk when this process ends.
  int keeps = 1;
  ::sqlite3_file_control(database.getHandle(), "main", SQLITE_FCNTL_PERSIST_WAL, &keeps);
  database.exec(fmt::format("PRAGMA wal_autocheckpoint = {}", kLogPages));
  [[maybe_unused]] const bool has_room = keep_room();  // a full disk is no reason not to start
  return {};
}

bool Database::keep_room() {
  SQLite::Database& database = *writer_;
  database.exec("DROP TABLE IF EXISTS room");  // of one that was killed in here
  if (database.execAndGet("PRAGMA freelist_count").getInt() >= kRoomPages / 2) {
    return true;
  }
  // A room that is half made would take of the disk what it is to keep.
  const std::int64_t bytes = std::int64_t{kRoomPages} * database.execAndGet("PRAGMA page_size").getInt();
  std::error_code error;
  if (const auto space = std::filesystem::space(file_, error);
      error || static_cast<std::int64_t>(space.available) < 3 * bytes) {
    return false;
  }
  database.exec("CREATE TABLE room (bytes BLOB)");
  database.exec(fmt::format("INSERT INTO room VALUES (zeroblob({}))", bytes));
  database.exec("PRAGMA wal_checkpoint(PASSIVE)");
  database.exec("DROP TABLE room");
  return true;
}

Result<void> Database::read(const std::function<Result<void>(SQLite::Database&)>& act) const {
  std::unique_ptr<SQLite::Database> reader;
  {
    const std::lock_guard lock(mutex_);
    if (!readers_.empty()) {
      reader = std::move(readers_.back());
      readers_.pop_back();
    }
  }
  try {
    if (reader == nullptr) {
      reader = connect(false);
    }
    const Result<void> outcome = act(*reader);
    const std::lock_guard lock(mutex_);
    readers_.push_back(std::move(reader));
    return outcome;
  } catch (const SQLite::Exception& exception) {
    return tl::unexpected(error_of(exception));
  }
}

Result<void> Database::write(const Act& act, const Committed& committed) { return write(act, committed, false); }

Result<void> Database::add(const Act& act, const Committed& committed) { return write(act, committed, true); }

Result<void> Database::write(const Act& act, const Committed& committed, bool adds) {
  Write own{act, committed, adds, {}, false};
  std::unique_lock lock(writing_);
  waiting_.push_back(&own);
  written_.wait(lock, [&] { return own.is_done || !is_writing_; });
  if (own.is_done) {  // by another thread
    return own.outcome;
  }
  is_writing_ = true;
  const std::vector<Write*> all = std::exchange(waiting_, {});
  lock.unlock();
  const std::vector<Write*> writes = those_with_room(all);
  if (writes.size() <= 1 || !write_together(writes)) {
    for (Write* each : writes) {
      write_alone(*each);
    }
  }
  for (Write* each : writes) {
    if (each->outcome && each->committed) {
      each->committed();
    }
  }
  lock.lock();
  for (Write* each : all) {
    each->is_done = true;
  }
  is_writing_ = false;
  written_.notify_all();
  return own.outcome;
}

std::vector<Database::Write*> Database::those_with_room(const std::vector<Write*>& writes) {
  if (std::none_of(writes.begin(), writes.end(), [](const Write* each) { return each->adds; })) {
    return writes;
  }
  Result<void> has_room;
  try {
    if (!keep_room()) {
      has_room =
          failed(fmt::format("{}: the disk is nearly full; free space on it. Nothing was changed", file_.string()));
    }
  } catch (const SQLite::Exception& exception) {
    has_room = tl::unexpected(error_of(exception));
  }
  std::vector<Write*> with_room;
  for (Write* each : writes) {
    if (each->adds && !has_room) {
      each->outcome = has_room;
    } else {
      with_room.push_back(each);
    }
  }
  return with_room;
}

bool Database::write_together(const std::vector<Write*>& writes) {
  bool has_begun = false;
  try {
    SQLite::Transaction transaction(*writer_, SQLite::TransactionBehavior::IMMEDIATE);
    has_begun = true;
    for (Write* each : writes) {
      SQLite::Savepoint savepoint(*writer_, "one");
      each->outcome = each->act(*writer_);
      if (each->outcome) {
        savepoint.release();
      }
    }
    transaction.commit();
    return true;
  } catch (const SQLite::Exception& exception) {
    for (Write* each : writes) {
      each->outcome = tl::unexpected(error_of(exception));
    }
    return !has_begun;
  }
}

void Database::write_alone(Write& write) {
  try {
    SQLite::Transaction transaction(*writer_, SQLite::TransactionBehavior::IMMEDIATE);
    write.outcome = write.act(*writer_);
    if (write.outcome) {
      transaction.commit();
    }
  } catch (const SQLite::Exception& exception) {
    write.outcome = tl::unexpected(error_of(exception));
  }
}

Error Database::error_of(const SQLite::Exception& exception) const {
  const auto error = [&](const char* what) {
    return Error{ErrorCode::kFailed, fmt::format("{}: {}", file_.string(), what)};
  };
  switch (exception.getErrorCode() & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return error("the store is locked by another program; end it. Nothing was changed");
    case SQLITE_FULL:
      return error("the disk is full; free space on it. Nothing was changed");
    case SQLITE_IOERR:
      return Error{
          ErrorCode::kFailed,
          fmt::format("{}: the disk cannot be read or written ({}); free space, or check the disk. Nothing was "
                      "changed",
                      file_.string(), exception.getErrorStr())};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return error("the store is damaged or no store; stop the server and restore a copy");
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return error("the store cannot be written; give this user the right to");
    case SQLITE_CANTOPEN:
      return error("the store cannot be opened; the directory must exist and be writable, and the disk not full");
    default:
      return Error{ErrorCode::kFailed, fmt::format("{}: {}", file_.string(), exception.what())};
  }
}

}  // namespace tesser::platform
