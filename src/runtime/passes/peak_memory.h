// Peak of a step's tensor storage, foreseen from the program alone.
#pragma once

#include "graph/program.h"
#include "memory/predict.h"

namespace tesser::runtime {

// What memory::predict gives for a prepared program (passes.h), with the memory that kernels are known to take for
// themselves while they run added to arena_bytes and peak_bytes. Within 5% of what an executor measures after its first
// step.
memory::MemoryPrediction predict_step_memory(const graph::Program& prepared);

}  // namespace tesser::runtime
