#include "kernels/recurrent_cells.h"

#include "kernels/recurrent_cells_loops.h"

namespace tesser::kernels {

namespace {

const RecurrentLoops& loops() {
#if defined(__x86_64__)
  if (best_instruction_set() == InstructionSet::kAvx512) return avx512::kRecurrentLoops;
  if (best_instruction_set() == InstructionSet::kAvx2) return avx2::kRecurrentLoops;
#endif
  return portable::kRecurrentLoops;
}

}  // namespace

void lstm_cell(const float* gates, const float* c, float* h, float* c_next, float* activations, std::int64_t begin,
               std::int64_t end, std::int64_t hidden) {
  loops().lstm(gates, c, h, c_next, activations, begin, end, hidden);
}

void lstm_cell_backward(const float* dh, const float* dc_next, const float* c, const float* c_next,
                        const float* activations, float* dgates, float* dc, std::int64_t begin, std::int64_t end,
                        std::int64_t hidden) {
  loops().lstm_backward(dh, dc_next, c, c_next, activations, dgates, dc, begin, end, hidden);
}

void gru_cell(const float* input_gates, const float* hidden_gates, const float* h, float* h_next, float* activations,
              std::int64_t begin, std::int64_t end, std::int64_t hidden) {
  loops().gru(input_gates, hidden_gates, h, h_next, activations, begin, end, hidden);
}

void gru_cell_backward(const float* dh_next, const float* hidden_gates, const float* h, const float* activations,
                       float* dinput_gates, float* dhidden_gates, float* dh, std::int64_t begin, std::int64_t end,
                       std::int64_t hidden) {
  loops().gru_backward(dh_next, hidden_gates, h, activations, dinput_gates, dhidden_gates, dh, begin, end, hidden);
}

void sigmoid(const float* x, float* result, std::int64_t count) { loops().sigmoid(x, result, count); }

void hyperbolic_tangent(const float* x, float* result, std::int64_t count) {
  loops().hyperbolic_tangent(x, result, count);
}

}  // namespace tesser::kernels
