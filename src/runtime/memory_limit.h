// How much memory this process may have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace tesser::runtime {

struct MemoryLimit {
  std::int64_t bytes = 0;
  std::string what;  // "memory of this machine"
};

// The smallest of the machine's memory and the limits of the control groups that the process is in (both versions of
// them). The paths are for tests.
MemoryLimit memory_limit(const std::filesystem::path& groups = "/proc/self/cgroup",
                         const std::filesystem::path& root = "/sys/fs/cgroup");

// Refuses (kFailed) a step that cannot fit, before it runs. `bytes` is what its tensors are foreseen to need.
Result<void> check_memory(std::int64_t bytes, const MemoryLimit& limit);

}  // namespace tesser::runtime
