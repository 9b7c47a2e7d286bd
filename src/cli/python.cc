#include "cli/python.h"

#include <cstdlib>
#include <system_error>

namespace tesser::cli {
namespace {

using Path = std::filesystem::path;

// The nearest folder above the executable that holds `relative`, or else the one this binary was built from.
std::optional<Path> find_above(const Path& relative) {
  std::error_code error;
  Path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / relative, error)) {
      return folder / relative;
    }
  }
  const Path source = Path(TESSER_SOURCE_DIR) / relative;
  return std::filesystem::exists(source, error) ? std::optional(source) : std::nullopt;
}

}  // namespace

std::string find_python() {
  if (const char* chosen = std::getenv("TESSER_PYTHON"); chosen != nullptr && *chosen != '\0') {
    return chosen;
  }
  if (const auto environment = find_above(".venv/bin/python")) {
    return environment->string();
  }
  const std::string at_build = TESSER_BUILD_PYTHON;
  return at_build.empty() ? "python3" : at_build;
}

std::optional<Path> find_python_package() {
  const auto package = find_above("python/tesser");
  return package ? std::optional(package->parent_path()) : std::nullopt;
}

}  // namespace tesser::cli
