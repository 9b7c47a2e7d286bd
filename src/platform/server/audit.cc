#include "platform/server/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_members.h"
#include "platform/job/times.h"

namespace tesser::platform {
namespace {

constexpr int kRefusalsPerSecond = 10;  // of one kind, address and user
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMostTextBytes = 500;

// What clients send is shown so that it is one line of text, whatever it is.
std::string shown(const std::string& text) {
  std::string made = text.substr(0, kMostTextBytes);
  std::replace_if(
      made.begin(), made.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return made;
}

}  // namespace

Result<std::unique_ptr<Audit>> Audit::open(const std::filesystem::path& file) {
  std::unique_ptr<Audit> audit(new Audit(file));
  TESSER_RETURN_IF_ERROR(audit->open_file());
  return audit;
}

Audit::~Audit() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

Result<void> Audit::open_file() {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct stat state {};
  if (file_ < 0 || ::fstat(file_, &state) != 0) {
    return tl::unexpected(file_error(path_, "open", errno));
  }
  bytes_ = static_cast<std::uint64_t>(state.st_size);
  return {};
}

void Audit::note(const AuditRecord& record) {
  const bool is_refusal = record.status >= 400;
  const bool is_left_out =
      is_refusal &&
      rates_.take(fmt::format("{} {} {}", record.address, record.user, record.status), kRefusalsPerSecond);
  const std::lock_guard lock(mutex_);
  if (is_left_out) {
    ++left_out_;
    return;
  }
  JsonMembers members;
  members.add("time", time_text(now_microseconds()))
      .add("address", record.address)
      .add("user", record.user)
      .add("token", record.token)
      .add("method", shown(record.method))
      .add("path", shown(record.path))
      .add("status", record.status)
      .add("message", shown(record.message));
  if (left_out_ > 0) {
    members.add("left_out_before", static_cast<std::int64_t>(left_out_));
    left_out_ = 0;
  }
  const std::string line = members.object() + "\n";
  if (bytes_ + line.size() > kMostBytes) {
    ::rename(path_.c_str(), (path_.string() + ".1").c_str());
    ::close(file_);
    if (!open_file()) {
      return;
    }
  }
  bytes_ += line.size();
  [[maybe_unused]] const auto written = ::write(file_, line.data(), line.size());  // a full disk ends no request
}

}  // namespace tesser::platform
