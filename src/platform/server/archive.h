// Submitted ZIPs and the TARs of downloads. Internal to this folder.
//
// Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tesser::platform {

struct UnpackLimits {
  std::uint64_t bytes = std::uint64_t{4} << 30;  // of all files together, as they come out
  std::size_t files = 100'000;
};

// Unpacks a ZIP into an empty directory, and makes what it wrote durable. Files and directories alone are taken, with
// their right to be executed; a ZIP with links, with paths that are absolute or lead out of the directory, with two
// files of one path, or with more than the limits is refused as a whole (kInvalidInput, naming the path). kFailed when
// the disk refuses. What was written until an error stays, for the caller to remove.
Result<void> unpack_zip(const std::filesystem::path& zip, const std::filesystem::path& directory,
                        const UnpackLimits& limits);

// Sends the files below a directory as a TAR (pax), in the order of their paths, links as links. False when the client
// is gone, or a file could not be read: the answer is broken off then.
bool write_tar(const std::filesystem::path& directory, const std::function<bool(std::string_view)>& write);

}  // namespace tesser::platform
