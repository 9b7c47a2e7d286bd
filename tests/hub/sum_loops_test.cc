#include "hub/sum_loops.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/instruction_set.h"

namespace tesser::hub {
namespace {

std::vector<const SumLoops*> all_loops() {
  std::vector<const SumLoops*> loops{&portable::kSumLoops};
#if defined(__x86_64__)
  if (best_instruction_set() >= InstructionSet::kAvx2) {
    loops.push_back(&avx2::kSumLoops);
  }
  if (best_instruction_set() >= InstructionSet::kAvx512) {
    loops.push_back(&avx512::kSumLoops);
  }
#endif
  return loops;
}

// What the bits of a float16 mean, by its definition.
double float16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(SumLoopsTest, EveryFloat16IsWidenedExactly) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t bits = 0; bits < all.size(); ++bits) {
    all[bits] = static_cast<std::uint16_t>(bits);
  }
  for (const SumLoops* loops : all_loops()) {
    std::vector<float> sum(all.size());
    const void* source = all.data();
    loops->sum(sum.data(), &source, 1, 65536, WireElement::kFloat16);
    for (std::size_t bits = 0; bits < all.size(); ++bits) {
      const double expected = float16_value(all[bits]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(sum[bits])) << bits;
      } else {
        EXPECT_EQ(sum[bits], expected) << bits;
        EXPECT_EQ(std::signbit(sum[bits]), std::signbit(expected)) << bits;
      }
    }
  }
}

TEST(SumLoopsTest, EveryBFloat16IsWidenedExactly) {
  for (const SumLoops* loops : all_loops()) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto element = static_cast<std::uint16_t>(bits);
      const void* source = &element;
      float sum = 0;
      loops->sum(&sum, &source, 1, 1, WireElement::kBFloat16);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(sum) >> 16, bits);
    }
  }
}

TEST(SumLoopsTest, SumsFromTheLeftWithAnyNumberOfSourcesAndElements) {
  for (const SumLoops* loops : all_loops()) {
    for (int count = 1; count <= 9; ++count) {
      for (const std::int64_t elements : {1, 15, 2047, 2048, 2049, 5000}) {
        std::vector<std::vector<float>> values;
        std::vector<const void*> sources;
        for (int source = 0; source < count; ++source) {
          values.emplace_back();
          for (std::int64_t i = 0; i < elements; ++i) {
            values.back().push_back(static_cast<float>(std::sin(static_cast<double>(source * 7919 + i))));
          }
        }
        for (const auto& each : values) {
          sources.push_back(each.data());
        }
        std::vector<float> sum(static_cast<std::size_t>(elements));
        loops->sum(sum.data(), sources.data(), count, elements, WireElement::kFloat32);
        std::vector<float> added(static_cast<std::size_t>(elements), 0.5F);
        loops->add(added.data(), sources.data(), count, elements, WireElement::kFloat32);
        for (std::size_t i = 0; i < sum.size(); ++i) {
          float expected = values[0][i];
          float expected_added = 0.5F + values[0][i];
          for (int source = 1; source < count; ++source) {
            expected += values[static_cast<std::size_t>(source)][i];
            expected_added += values[static_cast<std::size_t>(source)][i];
          }
          ASSERT_EQ(sum[i], expected);
          ASSERT_EQ(added[i], expected_added);
        }
      }
    }
  }
}

TEST(SumLoopsTest, SquaresAreTheSameForEveryInstructionSet) {
  std::vector<float> values;
  double expected = 0;
  for (int i = 0; i < 10'007; ++i) {
    values.push_back(static_cast<float>(std::sin(i)));
    expected += static_cast<double>(values.back()) * values.back();
  }
  const double first = portable::kSumLoops.squares(values.data(), 10'007);
  EXPECT_NEAR(first, expected, 1e-9);
  for (const SumLoops* loops : all_loops()) {
    EXPECT_EQ(loops->squares(values.data(), 10'007), first);
  }
}

}  // namespace
}  // namespace tesser::hub
