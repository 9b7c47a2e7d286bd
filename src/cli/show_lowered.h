#pragma once

#include <filesystem>

#include "base/result.h"

namespace tesser::cli {

// Whether a path is a folder that `tesser lower` has written.
bool is_lowered(const std::filesystem::path& path);

// Prints what each worker of a lowered program does and sends (docs/formats/lowered.md).
Result<int> show_lowered(const std::filesystem::path& directory, bool json);

}  // namespace tesser::cli
