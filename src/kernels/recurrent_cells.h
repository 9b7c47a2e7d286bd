// The elementwise parts of recurrent cells, fused: docs/formats/operators.md, Recurrent cells.
//
// Arrays are row-major float32 as there: B rows of H hidden units, gates [B, G, H]. Functions compute rows [begin, end)
// of arrays that start at row 0, so callers may divide the batch over threads. Exponentials are our own, accurate to
// about 2 ulp in sigmoid and tanh, with the same bits on every instruction set. Not a number in gives not a number out.
// Outputs must not overlap inputs. Any thread; no allocation.
#pragma once

#include <cstdint>

namespace tesser::kernels {

void lstm_cell(const float* gates, const float* c, float* h, float* c_next, float* activations, std::int64_t begin,
               std::int64_t end, std::int64_t hidden);

// dh and dc_next may each be null, which means zeros.
void lstm_cell_backward(const float* dh, const float* dc_next, const float* c, const float* c_next,
                        const float* activations, float* dgates, float* dc, std::int64_t begin, std::int64_t end,
                        std::int64_t hidden);

void gru_cell(const float* input_gates, const float* hidden_gates, const float* h, float* h_next, float* activations,
              std::int64_t begin, std::int64_t end, std::int64_t hidden);

void gru_cell_backward(const float* dh_next, const float* hidden_gates, const float* h, const float* activations,
                       float* dinput_gates, float* dhidden_gates, float* dh, std::int64_t begin, std::int64_t end,
                       std::int64_t hidden);

// The functions of the cells over arrays of `count` elements.
void sigmoid(const float* x, float* result, std::int64_t count);
void hyperbolic_tangent(const float* x, float* result, std::int64_t count);

}  // namespace tesser::kernels
