#include "platform/server/new_volume.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRandomLetters = 6;
constexpr std::string_view kLetters = "abcdefghijkmnpqrstuvwxyz23456789";  // 32 that are not taken for each other
static_assert(kLetters.size() == 32);
// Of ids that are taken. With 10,000 jobs of one name each try meets one of them once in 100,000 times.
constexpr int kMostTries = 100;

}  // namespace

Result<std::string> random_identifier(const std::string& name) {
  unsigned char bytes[kRandomLetters];
  if (::getrandom(bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
    return failed("the system gives no random numbers");
  }
  std::string id = name + "-";
  for (const unsigned char byte : bytes) {
    id += kLetters[byte % kLetters.size()];
  }
  return id;
}

bool looks_like_identifier(std::string_view text) {
  return text.size() > kRandomLetters + 1 && text[text.size() - kRandomLetters - 1] == '-' &&
         text.find_last_not_of(kLetters) == text.size() - kRandomLetters - 1;
}

NewVolume::NewVolume(fs::path data, std::string identifier)
    : data_(std::move(data)), identifier_(std::move(identifier)), path_(data_ / "incoming" / identifier_) {}

NewVolume::NewVolume(NewVolume&& other) noexcept
    : data_(std::move(other.data_)), identifier_(std::move(other.identifier_)), path_(std::exchange(other.path_, {})) {}

NewVolume::~NewVolume() {
  if (!path_.empty()) {
    std::error_code error;
    fs::remove_all(path_, error);
  }
}

Result<NewVolume> NewVolume::make(const fs::path& data, const std::function<Result<std::string>()>& next_identifier) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    TESSER_ASSIGN_OR_RETURN(std::string identifier, next_identifier());
    const fs::path path = data / "incoming" / identifier;
    if (::mkdir(path.c_str(), 0777) != 0) {
      if (errno != EEXIST) {
        return tl::unexpected(file_error(path, "create", errno));
      }
      continue;  // another submission has it
    }
    NewVolume volume(data, std::move(identifier));
    // Looked at now: whoever had the id before has moved it there by now, and nobody else can while it is ours.
    std::error_code error;
    if (!fs::exists(data / "jobs" / volume.identifier_, error) && !error) {
      return volume;
    }
  }
  return failed(fmt::format("{}: no id is free after {} tries", (data / "jobs").string(), kMostTries));
}

Result<void> NewVolume::move_to_jobs() {
  const fs::path home = data_ / "jobs" / identifier_;
  if (::rename(path_.c_str(), home.c_str()) != 0) {
    return tl::unexpected(file_error(home, "create", errno));
  }
  path_ = home;
  return sync_directory(home.parent_path());
}

}  // namespace tesser::platform
