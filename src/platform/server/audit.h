// DATA/audit.log: who changed what, and every attempt that was refused (docs/platform.md, Tenants). Internal to this
// folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

#include "base/result.h"
#include "platform/server/limits.h"

namespace tesser::platform {

struct AuditRecord {
  std::string address;
  std::string user;   // empty: a stranger
  std::string token;  // its id
  std::string method;
  std::string path;  // without its query, in which somebody may have put a secret
  int status = 0;
  std::string message;
};

// A line of JSON each. Of those that come too often from one place some are counted only; a full file is renamed to
// audit.log.1, over the one before it. Any thread.
class Audit {
 public:
  static Result<std::unique_ptr<Audit>> open(const std::filesystem::path& file);
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;
  ~Audit();

  void note(const AuditRecord& record);

 private:
  explicit Audit(std::filesystem::path file) : path_(std::move(file)) {}
  Result<void> open_file();

  const std::filesystem::path path_;
  RateLimits rates_;
  std::mutex mutex_;
  int file_ = -1;
  std::uint64_t bytes_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace tesser::platform
