// The fused loops give the bits of a sum and an update one after the other.
#include "hub/fused_loops.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/instruction_set.h"
#include "hub/sum_loops.h"
#include "optimizer/update.h"

namespace tesser::hub {
namespace {

constexpr std::int64_t kElements = 133;  // whole vectors and a rest

std::vector<const FusedLoops*> all_loops() {
  std::vector<const FusedLoops*> loops{&portable::kFusedLoops};
#if defined(__x86_64__)
  if (best_instruction_set() >= InstructionSet::kAvx2) {
    loops.push_back(&avx2::kFusedLoops);
  }
  if (best_instruction_set() >= InstructionSet::kAvx512) {
    loops.push_back(&avx512::kFusedLoops);
  }
#endif
  return loops;
}

using Array = std::vector<float>;

Array random_array(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values;
  Array array(kElements);
  for (float& each : array) {
    each = values(random);
  }
  array[3] = 0.0F;
  array[4] = -0.0F;
  array[5] = std::numeric_limits<float>::denorm_min();
  return array;
}

std::vector<std::uint32_t> bits(const Array& array) {
  std::vector<std::uint32_t> bits(array.size());
  std::memcpy(bits.data(), array.data(), array.size() * sizeof(float));
  return bits;
}

struct Gradients {
  std::vector<Array> arrays;
  std::vector<const float*> floats;
  Array sum = Array(kElements);

  explicit Gradients(int count) {
    std::vector<const void*> sources;
    for (int source = 0; source < count; ++source) {
      arrays.push_back(random_array(100 + static_cast<unsigned>(source)));
    }
    for (const Array& array : arrays) {
      floats.push_back(array.data());
      sources.push_back(array.data());
    }
    sum_loops().sum(sum.data(), sources.data(), count, kElements, WireElement::kFloat32);
  }
};

TEST(FusedLoopsTest, SgdIsTheSumAndThenTheUpdate) {
  const std::vector<optimizer::SgdSettings> cases = {
      {},
      {.weight_decay = 0.01},
      {.momentum = 0.9},
      {.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01, .maximize = true},
      {.momentum = 0.9, .nesterov = true},
      {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
  };
  for (int count = 1; count <= kMostFused; ++count) {
    const Gradients gradients(count);
    for (std::size_t index = 0; index < cases.size(); ++index) {
      const auto scalars = optimizer::sgd_scalars(cases[index], 0.1, 5, 1.0F / static_cast<float>(count));
      const bool has_momentum = cases[index].momentum != 0;
      Array weights = random_array(1);
      Array buffer = random_array(2);
      optimizer::sgd_update(weights.data(), gradients.sum.data(), has_momentum ? buffer.data() : nullptr, kElements,
                            scalars);
      for (const FusedLoops* loops : all_loops()) {
        Array fused_weights = random_array(1);
        Array fused_buffer = random_array(2);
        ASSERT_TRUE(loops->sgd(fused_weights.data(), has_momentum ? fused_buffer.data() : nullptr,
                               gradients.floats.data(), count, kElements, scalars));
        EXPECT_EQ(bits(fused_weights), bits(weights)) << count << " sources, case " << index;
        EXPECT_EQ(bits(fused_buffer), bits(buffer)) << count << " sources, case " << index;
      }
    }
  }
}

TEST(FusedLoopsTest, AdamIsTheSumAndThenTheUpdate) {
  const std::vector<optimizer::AdamSettings> cases = {
      {}, {.weight_decay = 0.01}, {.weight_decay = 0.01, .decoupled_weight_decay = true, .maximize = true}};
  for (int count = 1; count <= kMostFused; ++count) {
    const Gradients gradients(count);
    for (std::size_t index = 0; index < cases.size(); ++index) {
      const auto scalars = optimizer::adam_scalars(cases[index], 0.1, 5, 1.0F / static_cast<float>(count));
      Array square = random_array(3);
      for (float& each : square) {
        each = std::abs(each);
      }
      const Array squares_before = square;
      Array weights = random_array(1);
      Array average = random_array(2);
      optimizer::adam_update(weights.data(), gradients.sum.data(), average.data(), square.data(), nullptr, kElements,
                             scalars);
      for (const FusedLoops* loops : all_loops()) {
        Array fused_weights = random_array(1);
        Array fused_average = random_array(2);
        Array fused_square = squares_before;
        ASSERT_TRUE(loops->adam(fused_weights.data(), fused_average.data(), fused_square.data(),
                                gradients.floats.data(), count, kElements, scalars));
        EXPECT_EQ(bits(fused_weights), bits(weights)) << count << " sources, case " << index;
        EXPECT_EQ(bits(fused_average), bits(average)) << count << " sources, case " << index;
        EXPECT_EQ(bits(fused_square), bits(square)) << count << " sources, case " << index;
      }
    }
  }
}

TEST(FusedLoopsTest, WhatHasNoLoopIsLeftAlone) {
  const Gradients gradients(2);
  const std::vector<const float*> many(kMostFused + 1, gradients.floats[0]);
  const Array before = random_array(1);
  Array weights = before;
  Array state = before;
  Array more_state = before;
  const auto first_momentum = optimizer::sgd_scalars({.momentum = 0.9}, 0.1, 0, 1);
  const auto small_beta = optimizer::adam_scalars({.beta1 = 0.5}, 0.1, 5, 1);
  for (const FusedLoops* loops : all_loops()) {
    EXPECT_FALSE(loops->sgd(weights.data(), state.data(), gradients.floats.data(), 2, kElements, first_momentum));
    EXPECT_FALSE(loops->sgd(weights.data(), nullptr, many.data(), kMostFused + 1, kElements, first_momentum));
    EXPECT_FALSE(loops->sgd(weights.data(), nullptr, many.data(), 0, kElements, first_momentum));
    EXPECT_FALSE(loops->adam(weights.data(), state.data(), more_state.data(), gradients.floats.data(), 2, kElements,
                             small_beta));
  }
  EXPECT_EQ(weights, before);
  EXPECT_EQ(state, before);
  EXPECT_EQ(more_state, before);
}

}  // namespace
}  // namespace tesser::hub
