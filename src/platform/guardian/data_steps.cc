#include "platform/guardian/data_steps.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/data/s3.h"
#include "platform/job/learner_user.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

// Values of the names that data stores have for their keys.
Result<Secrets> read_secrets(const Volume& volume) {
  const Result<std::string> text = read_file(volume.secrets(), 1 << 22);
  if (!text) {
    return text.error().code == ErrorCode::kNotFound ? Result<Secrets>(Secrets()) : tl::unexpected(text.error());
  }
  return secrets_from_json(*text);
}

std::string why_no_directory(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return error == std::errc::permission_denied
             ? fmt::format("{} may not be entered", path.string())
             : fmt::format("{} is {}", path.string(), fs::exists(status) ? "no directory" : "not there");
}

// As whom learners see it, where that is not as everybody would think.
std::string as_whom(const Volume& volume) {
  const LearnerUser user = learner_user_of(volume);
  return ::geteuid() == user.user
             ? ""
             : fmt::format(", and that user {}, as whom the team's learners run, may enter", user.user);
}

// A link that appears under its name at once, also over an older one.
Result<void> link_to(const fs::path& target, const fs::path& link) {
  const fs::path beside = fmt::format("{}.partial-{}", link.string(), ::getpid());
  std::error_code error;
  fs::remove(beside, error);
  fs::create_directories(link.parent_path(), error);
  fs::create_directory_symlink(target, beside, error);
  if (!error) {
    fs::rename(beside, link, error);
  }
  return error ? Result<void>(failed(fmt::format("{}: cannot be made: {}", link.string(), error.message())))
               : Result<void>();
}

// Each file appears complete; one that is there already is replaced.
Result<void> copy_tree(const fs::path& from, const fs::path& to, const std::atomic<bool>& stop) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) {
    return failed(fmt::format("{}: results cannot be stored here: {}", to.string(), error.message()));
  }
  for (auto entry = fs::recursive_directory_iterator(from, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    if (stop) {
      return failed("told to stop");
    }
    const fs::path target = to / fs::relative(entry->path(), from);
    if (entry->is_directory(error)) {
      fs::create_directories(target, error);
    } else if (entry->is_regular_file(error)) {
      const fs::path partial = fmt::format("{}.partial-{}", target.string(), ::getpid());
      fs::copy_file(entry->path(), partial, fs::copy_options::overwrite_existing, error);
      if (!error) {
        fs::rename(partial, target, error);
      }
    }
    if (error) {
      return failed(fmt::format("{}: cannot be written: {}", target.string(), error.message()));
    }
  }
  return error ? Result<void>(failed(fmt::format("{}: cannot be read: {}", from.string(), error.message())))
               : sync_directory(to);
}

}  // namespace

Result<void> fetch_stores(const Manifest& manifest, const Volume& volume, const std::atomic<bool>& stop) {
  TESSER_ASSIGN_OR_RETURN(const Secrets secrets, read_secrets(volume));
  const ActingAs learner(volume);  // all of this is for learners: what they may not read is not fetched for them
  for (const DataStore& store : manifest.data_stores) {
    if (store.type == "s3") {
      TESSER_RETURN_IF_ERROR(fetch_from_s3(store, secrets, volume.data() / store.id, stop));
      continue;
    }
    std::error_code error;
    if (!fs::is_directory(store.path, error)) {
      return not_found(fmt::format("data store '{}': {}; it must be a directory that every node sees{}", store.id,
                                   why_no_directory(store.path), as_whom(volume)));
    }
    TESSER_RETURN_IF_ERROR(link_to(store.path, volume.data() / store.id));
  }
  return {};
}

Result<void> store_results(const Manifest& manifest, const Volume& volume, const std::atomic<bool>& stop) {
  if (manifest.results.empty()) {
    return {};
  }
  const std::size_t slash = std::min(manifest.results.find('/'), manifest.results.size());
  const std::string id = manifest.results.substr(0, slash);
  const auto store = std::find_if(manifest.data_stores.begin(), manifest.data_stores.end(),
                                  [&](const DataStore& each) { return each.id == id; });
  if (store == manifest.data_stores.end()) {
    return invalid_input(fmt::format("results go to '{}', which is none of the job's data stores", id));
  }
  const std::string below = manifest.results.substr(std::min(slash + 1, manifest.results.size()));
  TESSER_ASSIGN_OR_RETURN(const Secrets secrets, read_secrets(volume));
  const ActingAs learner(volume);  // links among results lead where learners could go themselves
  std::error_code error;
  if (!fs::exists(volume.results(), error)) {
    return {};
  }
  if (store->type == "s3") {
    TESSER_RETURN_IF_ERROR(store_to_s3(*store, secrets, below, volume.results(), stop));
    return {};
  }
  if (!fs::is_directory(store->path, error)) {
    return not_found(fmt::format("data store '{}': {}{}", store->id, why_no_directory(store->path), as_whom(volume)));
  }
  return copy_tree(volume.results(), store->path / below, stop);
}

}  // namespace tesser::platform
