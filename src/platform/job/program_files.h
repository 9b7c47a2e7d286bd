// Whether a submitted directory has what its manifest names there.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "platform/job/manifest.h"

namespace tesser::platform {

// Where a program's data lies: in a data store (below `stores`, a directory for each), or in the submitted directory.
std::filesystem::path data_of_program(const Manifest& manifest, const std::filesystem::path& directory,
                                      const std::filesystem::path& stores);

// kInvalidInput when `program`, or `data` that no store has, is not in the submitted directory. Empty: none was
// submitted.
Result<void> check_program_files(const Manifest& manifest, const std::filesystem::path& directory);

}  // namespace tesser::platform
