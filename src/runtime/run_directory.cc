#include "runtime/run_directory.h"

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"

namespace tesser::runtime {

namespace fs = std::filesystem;

RunDirectory::RunDirectory(fs::path path) : path_(std::move(path)) {}
RunDirectory::RunDirectory(RunDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
RunDirectory& RunDirectory::operator=(RunDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

RunDirectory::~RunDirectory() {
  if (!path_.empty()) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
}

Result<RunDirectory> RunDirectory::make(const std::optional<fs::path>& path) {
  std::error_code error;
  if (path) {
    const fs::path absolute = fs::absolute(*path).lexically_normal();
    fs::create_directories(absolute, error);
    if (!error && !fs::is_empty(absolute, error) && !error) {
      return invalid_input(fmt::format(
          "{}: is not empty; the directory of a run is removed at its end, so give a new one", path->string()));
    }
    if (error) {
      return tl::unexpected<Error>(file_error(*path, "make", error.value()));
    }
    return RunDirectory(absolute);
  }
  std::string pattern = (fs::temp_directory_path(error) / "tesser-run-XXXXXX").string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) {
    return tl::unexpected<Error>(file_error(pattern, "make", error ? error.value() : errno));
  }
  return RunDirectory(pattern);
}

}  // namespace tesser::runtime
