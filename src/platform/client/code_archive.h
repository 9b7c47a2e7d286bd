// A directory as the ZIP that is submitted (docs/formats/manifest.md, the submitted directory).
//
// Blocks on the disk. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace tesser::platform {

struct ArchiveLimits {
  std::uint64_t files = 100'000;
  std::uint64_t bytes = std::uint64_t{1} << 30;  // before compression
};

struct ArchiveSummary {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;  // before compression
  std::uint64_t zip_bytes = 0;
};

// The same names, contents and rights to execute give the same bytes. Appears at `zip` complete or not at all.
// kNotFound when there is no such directory, kInvalidInput for what cannot be sent (too much, links that lead out of
// it, a file that is none), with the largest files where it is too much.
Result<ArchiveSummary> pack_directory(const std::filesystem::path& directory, const std::filesystem::path& zip,
                                      const ArchiveLimits& limits = {});

}  // namespace tesser::platform
