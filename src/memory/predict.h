// Memory of a step, foreseen from the program alone.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "memory/layout.h"
#include "memory/liveness.h"

namespace tesser::memory {

struct LiveValue {
  graph::ValueId value = graph::kNone;
  std::int64_t bytes = 0;
};

struct MemoryPrediction {
  std::int64_t state_bytes = 0;            // of all inputs: state, constants, batch, each rounded up to the alignment
  std::int64_t arena_bytes = 0;            // for the results of nodes, as laid out by place()
  std::int64_t peak_bytes = 0;             // both
  std::int64_t live_bytes = 0;             // most bytes of results live at one time; no arena can be smaller
  graph::NodeId peak_node = graph::kNone;  // the first node at which so many are live; kNone without nodes
  std::vector<LiveValue> live_at_peak;     // results live there, largest first; views count with the value they view
};

inline constexpr std::int64_t kArenaAlignment = 64;

// Kernels' scratch memory is not in it.
MemoryPrediction predict(const graph::Program& program);

// The blocks of the arena: storages that are no inputs, in their order, sizes rounded up to the alignment.
std::vector<Block> arena_blocks(const Liveness& liveness);

}  // namespace tesser::memory
