// Hands trained weights back to PyTorch.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "base/result.h"
#include "runtime/checkpoint.h"

namespace tesser::runtime {

struct Exported {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

// Writes one safetensors file with the parameters and persistent buffers under the names of state_dict(), each alias as
// a tensor of its own, so that load_state_dict(strict=True) takes it. Commits the file.
Result<Exported> export_weights(const Checkpoint& checkpoint, AtomicFile output);

}  // namespace tesser::runtime
