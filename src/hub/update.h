// The update of one chunk: gradients of all replicas in, new weights out, in one pass over memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "hub/job_settings.h"
#include "hub/sum_loops.h"

namespace tesser::hub {

// A chunk's memory; all have `elements` elements.
struct ChunkMemory {
  float* weights = nullptr;
  std::array<float*, kMostStateTensors> state{};  // as ParameterGroup::state_tensors() counts them
  std::int64_t elements = 0;
};

// Updates weights and state by scale * (first + sources[0] + sources[1] ...), summed from the left; `first` may be null
// and then is left out; kAssign takes the sum without the scale. `updates`: how many the chunk has had. Any thread, on
// chunks of its own.
void update_chunk(const ChunkMemory& memory, const float* first, std::span<const void* const> sources,
                  WireElement element, const ParameterGroup& group, const Hyperparameters& numbers,
                  std::int64_t updates, float scale);

}  // namespace tesser::hub
