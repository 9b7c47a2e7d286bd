#include "runtime/peak_memory.h"

#include "memory/predict.h"

namespace tesser::runtime {

std::int64_t predict_peak_bytes(const graph::Program& program) { return memory::predict(program).peak_bytes; }

}  // namespace tesser::runtime
