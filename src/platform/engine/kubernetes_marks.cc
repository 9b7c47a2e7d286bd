#include "platform/engine/kubernetes_marks.h"

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "platform/engine/kubernetes_api.h"
#include "platform/engine/kubernetes_objects.h"
#include "platform/engine/kubernetes_status.h"
#include "platform/job/learner_user.h"
#include "platform/job/volume.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestMark = 64;
constexpr int kKilled = 128 + 9;  // as shells have it

struct Mark {
  fs::path volume;
  fs::path directory;
  std::string name;
};

std::optional<Mark> mark_of(const Json& pod) {
  const auto attempt = integer_label(pod, kAttemptLabel);
  const std::string identity = string_at(pod, {"metadata", "uid"});
  const Json* containers = json_at(pod, {"spec", "containers"});
  if (!attempt || identity.empty() || identity.find('/') != std::string::npos || containers == nullptr ||
      containers->array() == nullptr || containers->array()->empty()) {
    return std::nullopt;
  }
  const fs::path volume = string_at(containers->array()->front(), {"workingDir"});
  if (!volume.is_absolute()) {
    return std::nullopt;
  }
  return Mark{volume, marks_directory(volume, *attempt), "ended-" + identity};
}

// A directory that is opened is asked for at its server; a name that was not there may be remembered as such.
bool has_any(const fs::path& directory, const std::set<std::string>& names) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (names.contains(entry->path().filename().string())) {
      return true;
    }
  }
  return false;
}

}  // namespace

fs::path marks_directory(const fs::path& volume, int attempt) { return Volume(volume).attempt(attempt) / "kubernetes"; }

std::optional<std::string> marked_end(const Json& pod) {
  const auto mark = mark_of(pod);
  if (!mark) {
    return std::nullopt;
  }
  const ActingAs learner{Volume(mark->volume)};
  if (!has_any(mark->directory, {mark->name})) {
    return std::nullopt;
  }
  const auto text = read_file(mark->directory / mark->name, kLongestMark);
  int code = 0;
  int kills = 0;
  if (text) {
    const char* end = text->data() + text->size();
    const auto space = std::from_chars(text->data(), end, code).ptr;
    std::from_chars(std::min(space + 1, end), end, kills);
  }
  return code == kKilled && kills > 0 ? "OOMKilled" : "";
}

void AwaitedMarks::add(const Json& pod) {
  if (const auto mark = mark_of(pod)) {
    names_[mark->directory].insert(mark->name);
  }
}

bool AwaitedMarks::is_any_there() const {
  return std::any_of(names_.begin(), names_.end(), [](const auto& each) {
    // attempts/N/kubernetes of a volume
    const ActingAs learner{Volume(each.first.parent_path().parent_path().parent_path())};
    return has_any(each.first, each.second);
  });
}

}  // namespace tesser::platform
