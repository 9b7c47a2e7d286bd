// Hands trained weights back to PyTorch.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "runtime/checkpoint.h"

namespace tesser::runtime {

struct Exported {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

// Writes one safetensors file with the parameters and persistent buffers under the names of state_dict(), each alias as
// a tensor of its own, so that load_state_dict(strict=True) takes it. The file appears complete or not at all and
// replaces an existing one.
Result<Exported> export_weights(const Checkpoint& checkpoint, const std::filesystem::path& output);

}  // namespace tesser::runtime
