// A directory for the files of one run, which nobody needs after it.
#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"

namespace tesser::runtime {

// Removed with everything in it by the destructor. Move-only.
class RunDirectory {
 public:
  // `path` must not exist or be empty; without one, a new directory among the system's temporary ones.
  static Result<RunDirectory> make(const std::optional<std::filesystem::path>& path);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&& other) noexcept;
  ~RunDirectory();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit RunDirectory(std::filesystem::path path);

  std::filesystem::path path_;  // absolute; empty when there is nothing to remove
};

}  // namespace tesser::runtime
