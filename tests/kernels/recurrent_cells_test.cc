#include "kernels/recurrent_cells.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/recurrent_cells_loops.h"

namespace tesser::kernels {
namespace {

constexpr std::int64_t kBatch = 5;
constexpr std::int64_t kHidden = 37;  // vectors and a rest
constexpr std::int64_t kCells = kBatch * kHidden;

std::vector<float> normal_numbers(std::int64_t count, unsigned seed, float scale = 2.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0F, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

double sigmoid_in_double(double x) { return 1 / (1 + std::exp(-x)); }

// Largest error of a function in units in the last place of the exact result, over all magnitudes.
double largest_error(void (*function)(const float*, float*, std::int64_t), const std::function<double(double)>& exact) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 8191) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isfinite(value)) x.push_back(value);
  }
  for (float value = -20.0F; value < 20.0F; value += 0x1p-12F) x.push_back(value);
  std::vector<float> found(x.size());
  function(x.data(), found.data(), static_cast<std::int64_t>(x.size()));
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(x[i]);
    const float rounded = std::abs(static_cast<float>(expected));
    if (rounded < std::numeric_limits<float>::min()) {
      EXPECT_NEAR(found[i], expected, std::numeric_limits<float>::min()) << x[i];
      continue;
    }
    const double unit = static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity())) - rounded;
    largest = std::max(largest, std::abs(found[i] - expected) / unit);
  }
  return largest;
}

TEST(Sigmoid, IsAccurate) { EXPECT_LT(largest_error(sigmoid, sigmoid_in_double), 2.5); }

TEST(HyperbolicTangent, IsAccurate) {
  EXPECT_LT(largest_error(hyperbolic_tangent, [](double x) { return std::tanh(x); }), 1.5);
}

TEST(CellFunctions, SpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-infinity, infinity, std::numeric_limits<float>::quiet_NaN(), 0.0F, -0.0F};
  std::vector<float> s(x.size());
  std::vector<float> t(x.size());
  sigmoid(x.data(), s.data(), 5);
  hyperbolic_tangent(x.data(), t.data(), 5);
  EXPECT_NEAR(s[0], 0.0F, 1e-37F);
  EXPECT_EQ(s[1], 1.0F);
  EXPECT_TRUE(std::isnan(s[2]));
  EXPECT_EQ(s[3], 0.5F);
  EXPECT_EQ(t[0], -1.0F);
  EXPECT_EQ(t[1], 1.0F);
  EXPECT_TRUE(std::isnan(t[2]));
  EXPECT_EQ(t[3], 0.0F);
  EXPECT_TRUE(std::signbit(t[4]));
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-6 * std::max(1.0, std::abs(expected[i]))) << what << "[" << i << "]";
  }
}

struct LstmResult {
  std::vector<float> h = std::vector<float>(kCells);
  std::vector<float> c_next = std::vector<float>(kCells);
  std::vector<float> activations = std::vector<float>(4 * kCells);

  void run(const std::vector<float>& gates, const std::vector<float>& c) {
    // Over rows in two parts.
    for (const auto& [begin, end] : {std::pair{0, 2}, {2, static_cast<int>(kBatch)}}) {
      lstm_cell(gates.data(), c.data(), h.data(), c_next.data(), activations.data(), begin, end, kHidden);
    }
  }
};

TEST(LstmCell, EqualsItsFormulas) {
  const std::vector<float> gates = normal_numbers(4 * kCells, 1);
  const std::vector<float> c = normal_numbers(kCells, 2);
  LstmResult result;
  result.run(gates, c);
  std::vector<double> h(kCells);
  std::vector<double> c_next(kCells);
  std::vector<double> activations(4 * kCells);
  for (std::int64_t row = 0; row < kBatch; ++row) {
    for (std::int64_t j = 0; j < kHidden; ++j) {
      const auto gate = [&](std::int64_t index) { return static_cast<std::size_t>((row * 4 + index) * kHidden + j); };
      const auto cell = static_cast<std::size_t>(row * kHidden + j);
      for (std::int64_t index = 0; index < 4; ++index) {
        activations[gate(index)] = index == 2 ? std::tanh(gates[gate(index)]) : sigmoid_in_double(gates[gate(index)]);
      }
      c_next[cell] = activations[gate(1)] * c[cell] + activations[gate(0)] * activations[gate(2)];
      h[cell] = activations[gate(3)] * std::tanh(c_next[cell]);
    }
  }
  expect_near(result.activations, activations, "activations");
  expect_near(result.c_next, c_next, "c_next");
  expect_near(result.h, h, "h");
}

// d(sum of weights * outputs) / d(input), by central differences in double of a formula.
double derivative(const std::function<double(double)>& of) { return (of(1e-5) - of(-1e-5)) / 2e-5; }

TEST(LstmCellBackward, EqualsDifferences) {
  const std::vector<float> gates = normal_numbers(4 * kCells, 3, 1.0F);
  const std::vector<float> c = normal_numbers(kCells, 4, 1.0F);
  const std::vector<float> dh = normal_numbers(kCells, 5, 1.0F);
  const std::vector<float> dc_next = normal_numbers(kCells, 6, 1.0F);
  LstmResult forward;
  forward.run(gates, c);
  for (const bool has_dh : {true, false}) {
    for (const bool has_dc : {true, false}) {
      std::vector<float> dgates(4 * kCells);
      std::vector<float> dc(kCells);
      lstm_cell_backward(has_dh ? dh.data() : nullptr, has_dc ? dc_next.data() : nullptr, c.data(),
                         forward.c_next.data(), forward.activations.data(), dgates.data(), dc.data(), 0, kBatch,
                         kHidden);
      for (std::int64_t row = 0; row < kBatch; ++row) {
        for (std::int64_t j = 0; j < kHidden; ++j) {
          const auto cell = static_cast<std::size_t>(row * kHidden + j);
          const auto at = [&](std::int64_t index) { return static_cast<std::size_t>((row * 4 + index) * kHidden + j); };
          // `moved` is the input that moves: a gate, or 4 for c.
          const auto objective = [&](std::int64_t moved, double by) {
            const auto gate = [&](std::int64_t index) { return gates[at(index)] + (index == moved ? by : 0); };
            const double next = sigmoid_in_double(gate(1)) * (c[cell] + (moved == 4 ? by : 0)) +
                                sigmoid_in_double(gate(0)) * std::tanh(gate(2));
            const double h = sigmoid_in_double(gate(3)) * std::tanh(next);
            return (has_dh ? dh[cell] * h : 0) + (has_dc ? dc_next[cell] * next : 0);
          };
          for (std::int64_t index = 0; index < 4; ++index) {
            EXPECT_NEAR(dgates[at(index)], derivative([&](double by) { return objective(index, by); }), 2e-6);
          }
          EXPECT_NEAR(dc[cell], derivative([&](double by) { return objective(4, by); }), 2e-6);
        }
      }
    }
  }
}

TEST(GruCell, EqualsItsFormulasAndDifferences) {
  const std::vector<float> input_gates = normal_numbers(3 * kCells, 7, 1.0F);
  const std::vector<float> hidden_gates = normal_numbers(3 * kCells, 8, 1.0F);
  const std::vector<float> h = normal_numbers(kCells, 9, 1.0F);
  const std::vector<float> dh_next = normal_numbers(kCells, 10, 1.0F);
  std::vector<float> h_next(kCells);
  std::vector<float> activations(3 * kCells);
  std::vector<float> dinput(3 * kCells);
  std::vector<float> dhidden(3 * kCells);
  std::vector<float> dh(kCells);
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, static_cast<int>(kBatch)}}) {
    gru_cell(input_gates.data(), hidden_gates.data(), h.data(), h_next.data(), activations.data(), begin, end, kHidden);
    gru_cell_backward(dh_next.data(), hidden_gates.data(), h.data(), activations.data(), dinput.data(), dhidden.data(),
                      dh.data(), begin, end, kHidden);
  }
  for (std::int64_t row = 0; row < kBatch; ++row) {
    for (std::int64_t j = 0; j < kHidden; ++j) {
      const auto cell = static_cast<std::size_t>(row * kHidden + j);
      const auto at = [&](std::int64_t index) { return static_cast<std::size_t>((row * 3 + index) * kHidden + j); };
      // `moved`: 0 to 2 an input gate, 3 to 5 a hidden gate, 6 h.
      const auto next = [&](std::int64_t moved, double by) {
        const auto input = [&](std::int64_t index) { return input_gates[at(index)] + (index == moved ? by : 0); };
        const auto hidden = [&](std::int64_t index) { return hidden_gates[at(index)] + (index + 3 == moved ? by : 0); };
        const double r = sigmoid_in_double(input(0) + hidden(0));
        const double z = sigmoid_in_double(input(1) + hidden(1));
        const double n = std::tanh(input(2) + r * hidden(2));
        return n + z * (h[cell] + (moved == 6 ? by : 0) - n);
      };
      EXPECT_NEAR(h_next[cell], next(-1, 0), 1e-6);
      for (std::int64_t index = 0; index < 3; ++index) {
        EXPECT_NEAR(dinput[at(index)], dh_next[cell] * derivative([&](double by) { return next(index, by); }), 2e-6);
        EXPECT_NEAR(dhidden[at(index)], dh_next[cell] * derivative([&](double by) { return next(index + 3, by); }),
                    2e-6);
      }
      EXPECT_NEAR(dh[cell], dh_next[cell] * derivative([&](double by) { return next(6, by); }), 2e-6);
    }
  }
}

#if defined(__x86_64__)
void check_same_loops(const RecurrentLoops& loops, const RecurrentLoops& reference) {
  const std::vector<float> gates = normal_numbers(4 * kCells, 11);
  const std::vector<float> state = normal_numbers(kCells, 12);
  std::vector<float> results[2][12];
  const RecurrentLoops* both[] = {&reference, &loops};
  for (int i = 0; i < 2; ++i) {
    auto& r = results[i];
    for (std::vector<float>& result : r) result.resize(4 * kCells);
    both[i]->lstm(gates.data(), state.data(), r[0].data(), r[1].data(), r[2].data(), 0, kBatch, kHidden);
    both[i]->lstm_backward(state.data(), gates.data(), state.data(), r[1].data(), r[2].data(), r[3].data(), r[4].data(),
                           0, kBatch, kHidden);
    both[i]->gru(gates.data(), gates.data(), state.data(), r[5].data(), r[6].data(), 0, kBatch, kHidden);
    both[i]->gru_backward(state.data(), gates.data(), state.data(), r[6].data(), r[7].data(), r[8].data(), r[9].data(),
                          0, kBatch, kHidden);
    both[i]->sigmoid(gates.data(), r[10].data(), 4 * kCells);
    both[i]->hyperbolic_tangent(gates.data(), r[11].data(), 4 * kCells);
  }
  for (int k = 0; k < 12; ++k) EXPECT_EQ(results[1][k], results[0][k]) << k;
}

TEST(RecurrentCells, AreTheSameOnEveryInstructionSet) {
  if (best_instruction_set() == InstructionSet::kPortable)
    GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
  check_same_loops(avx2::kRecurrentLoops, portable::kRecurrentLoops);
  if (best_instruction_set() == InstructionSet::kAvx512)
    check_same_loops(avx512::kRecurrentLoops, portable::kRecurrentLoops);
}
#endif

}  // namespace
}  // namespace tesser::kernels
