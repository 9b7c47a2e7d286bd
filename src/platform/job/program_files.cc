#include "platform/job/program_files.h"

#include <algorithm>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

bool is_in_store(const Manifest& manifest) {
  const fs::path named = manifest.program->data;
  const std::string first = named.empty() ? "" : named.begin()->string();
  return std::any_of(manifest.data_stores.begin(), manifest.data_stores.end(),
                     [&](const DataStore& each) { return each.id == first; });
}

}  // namespace

fs::path data_of_program(const Manifest& manifest, const fs::path& directory, const fs::path& stores) {
  return (is_in_store(manifest) ? stores : directory) / manifest.program->data;
}

Result<void> check_program_files(const Manifest& manifest, const fs::path& directory) {
  if (!manifest.program) {
    return {};
  }
  std::error_code error;
  if (directory.empty() || !fs::is_regular_file(directory / manifest.program->program, error)) {
    return invalid_input(
        fmt::format("'program' is '{}', which is no file of the submitted directory; name the directory that has it: "
                    "tesser submit MANIFEST DIR",
                    manifest.program->program));
  }
  if (!is_in_store(manifest) && !fs::exists(directory / manifest.program->data, error)) {
    return invalid_input(fmt::format(
        "'data' is '{}', which is neither in the submitted directory (.tesserignore may leave it out) nor begins with "
        "the id of a data store",
        manifest.program->data));
  }
  return {};
}

}  // namespace tesser::platform
