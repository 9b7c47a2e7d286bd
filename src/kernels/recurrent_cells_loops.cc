// Compiled once for each instruction set; see cmake/TesserVectorized.cmake. Loops are plain and free of branches, for
// the compiler to vectorise.
#include "kernels/recurrent_cells_loops.h"

namespace tesser::kernels::TESSER_LOOPS {

namespace {

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// e^x for x in [-87, 88], clamped outside. x = n ln 2 + r with n an integer, |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r),
// whose coefficients are Chebyshev-fitted to a relative error of 1e-8; 2^n is made from its exponent bits.
inline float exponential(float x) {
  // Comparisons that leave not a number as it is.
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  constexpr float kRound = 0x1.8p23F;  // adding it rounds to an integer
  const float shifted = fused(x, 0x1.715476p+0F, kRound);
  const float n = shifted - kRound;
  float r = fused(n, -0x1.62e4p-1F, x);  // ln 2 in two parts, the first short enough that n times it is exact
  r = fused(n, -0x1.7f7d1cp-20F, r);
  float q = 0.0013933661F;
  q = fused(q, r, 0.008363187F);
  q = fused(q, r, 0.041666463F);
  q = fused(q, r, 0.16666576F);
  q = fused(q, r, 0.5F);
  const float power = fused(r * r, q, r) + 1.0F;
  const unsigned exponent = (__builtin_bit_cast(unsigned, shifted) + 127U) << 23;
  return power * __builtin_bit_cast(float, exponent);
}

inline float sigmoid_of(float x) { return 1.0F / (1.0F + exponential(-x)); }

// Near zero x + x^3 t(x^2), Chebyshev-fitted to a relative error of 2e-9; beyond, 1 - 2 / (e^2|x| + 1) with the sign of
// x.
inline float tanh_of(float x) {
  const float square = x * x;
  float t = 0.002187473F;
  t = fused(t, square, -0.008246306F);
  t = fused(t, square, 0.0217376F);
  t = fused(t, square, -0.053955223F);
  t = fused(t, square, 0.13333286F);
  t = fused(t, square, -0.33333334F);
  const float near = fused(x * square, t, x);
  const float magnitude = __builtin_fabsf(x);
  // From 10 on tanh is 1 in float32; the bound keeps e^2|x| finite.
  const float bounded = magnitude > 10.0F ? 10.0F : magnitude;
  const float far = 1.0F - 2.0F / (exponential(2.0F * bounded) + 1.0F);
  return __builtin_copysignf(magnitude < 0.65F ? near : far, x);
}

// One row of a cell. Parameters are declared not to alias, and the functions stay whole, because the compiler
// vectorises such loops without asking at run time which arrays overlap.

[[gnu::noinline]] void lstm_row(const float* __restrict gate, const float* __restrict before, float* __restrict output,
                                float* __restrict after, float* __restrict activation, std::int64_t hidden) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float i = sigmoid_of(gate[j]);
    const float f = sigmoid_of(gate[hidden + j]);
    const float g = tanh_of(gate[2 * hidden + j]);
    const float o = sigmoid_of(gate[3 * hidden + j]);
    const float next = fused(f, before[j], i * g);
    activation[j] = i;
    activation[hidden + j] = f;
    activation[2 * hidden + j] = g;
    activation[3 * hidden + j] = o;
    after[j] = next;
    output[j] = o * tanh_of(next);
  }
}

template <bool has_dh, bool has_dc>
[[gnu::noinline]] void lstm_backward_row(const float* __restrict dhidden, const float* __restrict dafter,
                                         const float* __restrict before, const float* __restrict after,
                                         const float* __restrict activation, float* __restrict dgate,
                                         float* __restrict dbefore, std::int64_t hidden) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float i = activation[j];
    const float f = activation[hidden + j];
    const float g = activation[2 * hidden + j];
    const float o = activation[3 * hidden + j];
    float total = has_dc ? dafter[j] : 0.0F;
    float doutput = 0.0F;
    if (has_dh) {
      const float tanh_after = tanh_of(after[j]);
      total = fused(dhidden[j] * o, fused(-tanh_after, tanh_after, 1.0F), total);
      doutput = dhidden[j] * tanh_after * (o * (1.0F - o));
    }
    dgate[j] = total * g * (i * (1.0F - i));
    dgate[hidden + j] = total * before[j] * (f * (1.0F - f));
    dgate[2 * hidden + j] = total * i * fused(-g, g, 1.0F);
    dgate[3 * hidden + j] = doutput;
    dbefore[j] = total * f;
  }
}

[[gnu::noinline]] void gru_row(const float* __restrict input, const float* __restrict recurrent,
                               const float* __restrict before, float* __restrict after, float* __restrict activation,
                               std::int64_t hidden) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float r = sigmoid_of(input[j] + recurrent[j]);
    const float z = sigmoid_of(input[hidden + j] + recurrent[hidden + j]);
    const float n = tanh_of(fused(r, recurrent[2 * hidden + j], input[2 * hidden + j]));
    activation[j] = r;
    activation[hidden + j] = z;
    activation[2 * hidden + j] = n;
    after[j] = fused(z, before[j] - n, n);
  }
}

[[gnu::noinline]] void gru_backward_row(const float* __restrict dafter, const float* __restrict recurrent,
                                        const float* __restrict before, const float* __restrict activation,
                                        float* __restrict dinput, float* __restrict drecurrent,
                                        float* __restrict dbefore, std::int64_t hidden) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float r = activation[j];
    const float z = activation[hidden + j];
    const float n = activation[2 * hidden + j];
    const float dn = dafter[j] * (1.0F - z) * fused(-n, n, 1.0F);
    const float dz = dafter[j] * (before[j] - n) * (z * (1.0F - z));
    const float dr = dn * recurrent[2 * hidden + j] * (r * (1.0F - r));
    dinput[j] = dr;
    dinput[hidden + j] = dz;
    dinput[2 * hidden + j] = dn;
    drecurrent[j] = dr;
    drecurrent[hidden + j] = dz;
    drecurrent[2 * hidden + j] = dn * r;
    dbefore[j] = dafter[j] * z;
  }
}

void lstm(const float* gates, const float* c, float* h, float* c_next, float* activations, std::int64_t begin,
          std::int64_t end, std::int64_t hidden) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * hidden;
    lstm_row(gates + 4 * at, c + at, h + at, c_next + at, activations + 4 * at, hidden);
  }
}

void lstm_backward(const float* dh, const float* dc_next, const float* c, const float* c_next, const float* activations,
                   float* dgates, float* dc, std::int64_t begin, std::int64_t end, std::int64_t hidden) {
  auto* backward_row = lstm_backward_row<true, true>;
  if (dh == nullptr) {
    backward_row = dc_next == nullptr ? lstm_backward_row<false, false> : lstm_backward_row<false, true>;
  } else if (dc_next == nullptr) {
    backward_row = lstm_backward_row<true, false>;
  }
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * hidden;
    backward_row(dh == nullptr ? nullptr : dh + at, dc_next == nullptr ? nullptr : dc_next + at, c + at, c_next + at,
                 activations + 4 * at, dgates + 4 * at, dc + at, hidden);
  }
}

void gru(const float* input_gates, const float* hidden_gates, const float* h, float* h_next, float* activations,
         std::int64_t begin, std::int64_t end, std::int64_t hidden) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * hidden;
    gru_row(input_gates + 3 * at, hidden_gates + 3 * at, h + at, h_next + at, activations + 3 * at, hidden);
  }
}

void gru_backward(const float* dh_next, const float* hidden_gates, const float* h, const float* activations,
                  float* dinput_gates, float* dhidden_gates, float* dh, std::int64_t begin, std::int64_t end,
                  std::int64_t hidden) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * hidden;
    gru_backward_row(dh_next + at, hidden_gates + 3 * at, h + at, activations + 3 * at, dinput_gates + 3 * at,
                     dhidden_gates + 3 * at, dh + at, hidden);
  }
}

void sigmoid(const float* x, float* result, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) result[i] = sigmoid_of(x[i]);
}

void hyperbolic_tangent(const float* x, float* result, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) result[i] = tanh_of(x[i]);
}

}  // namespace

const RecurrentLoops kRecurrentLoops = {lstm, lstm_backward, gru, gru_backward, sigmoid, hyperbolic_tangent};

}  // namespace tesser::kernels::TESSER_LOOPS
