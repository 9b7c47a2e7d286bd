// Connections to the store's file: one that writes, some that read. Internal to this folder.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

namespace SQLite {
class Database;
class Exception;
}  // namespace SQLite

namespace tesser::platform {

// Any thread. What the functions get must not leave them. They may throw SQLite::Exception, and return errors of
// their own, either of which undoes all of a write.
class Database {
 public:
  static Result<std::unique_ptr<Database>> open(const std::filesystem::path& file);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  Result<void> read(const std::function<Result<void>(SQLite::Database&)>& act) const;
  // In a transaction that is durable when this returns. Those who write at the same time share one, so `act` may be
  // called again, and sees what others of the same transaction have done. `committed` is called once, after the
  // transaction, in the order of the writes.
  using Act = std::function<Result<void>(SQLite::Database&)>;
  using Committed = std::function<void()>;
  Result<void> write(const Act& act, const Committed& committed = {});
  // Likewise, for what adds to the file: it leaves the room that keep_room() has made to writes that only change what
  // is there, so that these go through on a full disk as well. kFailed when the disk has no such room.
  Result<void> add(const Act& act, const Committed& committed = {});

 private:
  explicit Database(std::filesystem::path file);
  std::unique_ptr<SQLite::Database> connect(bool writes) const;
  Result<void> prepare();  // an empty or older file
  bool keep_room();        // in the file and in its write-ahead log; false when the disk has none

  struct Write {
    const Act& act;
    const Committed& committed;
    bool adds = false;
    Result<void> outcome;
    bool is_done = false;
  };
  Result<void> write(const Act& act, const Committed& committed, bool adds);
  // The others have their outcome.
  std::vector<Write*> those_with_room(const std::vector<Write*>& writes);
  // All of them in one transaction. False, with nothing changed, where one of them made the database itself fail: each
  // is then to be tried alone.
  bool write_together(const std::vector<Write*>& writes);
  void write_alone(Write& write);
  Error error_of(const SQLite::Exception& exception) const;

  const std::filesystem::path file_;
  std::unique_ptr<SQLite::Database> writer_;
  std::mutex writing_;
  std::condition_variable written_;
  std::vector<Write*> waiting_;  // to be written
  bool is_writing_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<SQLite::Database>> readers_;  // that nobody uses now
};

}  // namespace tesser::platform
