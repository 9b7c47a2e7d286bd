// Connections to the store's file: one that writes, some that read. Internal to this folder.
#pragma once

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
  // In one transaction, which is durable when this returns.
  Result<void> write(const std::function<Result<void>(SQLite::Database&)>& act);
  // Likewise, for what adds to the file: it leaves the room that keep_room() has made to writes that only change what
  // is there, so that these go through on a full disk as well. kFailed when the disk has no such room.
  Result<void> add(const std::function<Result<void>(SQLite::Database&)>& act);

 private:
  explicit Database(std::filesystem::path file);
  std::unique_ptr<SQLite::Database> connect(bool writes) const;
  Result<void> prepare();  // an empty or older file
  Result<void> commit(const std::function<Result<void>(SQLite::Database&)>& act);
  bool keep_room();  // in the file and in its write-ahead log; false when the disk has none
  Error error_of(const SQLite::Exception& exception) const;

  const std::filesystem::path file_;
  std::unique_ptr<SQLite::Database> writer_;
  std::mutex writing_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<SQLite::Database>> readers_;  // that nobody uses now
};

}  // namespace tesser::platform
