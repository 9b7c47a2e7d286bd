// Compiled once for each instruction set; see cmake/TesserVectorized.cmake. The loops are plain, for the compiler to
// vectorise.
#include "hub/sum_loops.h"

namespace tesser::hub::TESSER_LOOPS {
namespace {

inline float from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline float widen(float value) { return value; }

struct BFloat16 {
  std::uint16_t bits;
};
inline float widen(BFloat16 value) { return from_bits(std::uint32_t{value.bits} << 16); }

struct Float16 {
  std::uint16_t bits;
};
inline float widen(Float16 value) {
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  // The exponent's bias grows by 112; what was subnormal becomes normal by the product.
  const float scaled = from_bits(magnitude << 13) * 0x1p112F;
  const std::uint32_t special = magnitude >= 0x7c00U ? 0x7f800000U : 0U;  // infinity, not a number
  return from_bits(__builtin_bit_cast(std::uint32_t, scaled) | special | sign);
}

// As many sources are read at once: one after the other, the sum would be read and written again for each, and
// memory would not be kept busy.
constexpr int kAtOnce = 8;

template <typename Element, int count, bool adds>
void sum_of(float* __restrict sum, const void* const* sources, std::int64_t elements) {
  const Element* from[count];
  for (int source = 0; source < count; ++source) from[source] = static_cast<const Element*>(sources[source]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < elements; ++i) {
    float value = adds ? sum[i] + widen(from[0][i]) : widen(from[0][i]);
#pragma GCC unroll 8
    for (int source = 1; source < count; ++source) value += widen(from[source][i]);
    sum[i] = value;
  }
}

// At most kAtOnce sources.
template <typename Element, bool adds>
void sum_some(float* sum, const void* const* sources, int count, std::int64_t elements) {
  switch (count) {
    case 1:
      return sum_of<Element, 1, adds>(sum, sources, elements);
    case 2:
      return sum_of<Element, 2, adds>(sum, sources, elements);
    case 3:
      return sum_of<Element, 3, adds>(sum, sources, elements);
    case 4:
      return sum_of<Element, 4, adds>(sum, sources, elements);
    case 5:
      return sum_of<Element, 5, adds>(sum, sources, elements);
    case 6:
      return sum_of<Element, 6, adds>(sum, sources, elements);
    case 7:
      return sum_of<Element, 7, adds>(sum, sources, elements);
    default:
      return sum_of<Element, kAtOnce, adds>(sum, sources, elements);
  }
}

template <typename Element>
void add_typed(float* sum, const void* const* sources, int count, std::int64_t elements) {
  for (int source = 0; source < count; source += kAtOnce) {
    sum_some<Element, true>(sum, sources + source, count - source < kAtOnce ? count - source : kAtOnce, elements);
  }
}

template <typename Element>
void sum_typed(float* sum, const void* const* sources, int count, std::int64_t elements) {
  const int first = count < kAtOnce ? count : kAtOnce;
  sum_some<Element, false>(sum, sources, first, elements);
  add_typed<Element>(sum, sources + first, count - first, elements);
}

void sum(float* sum, const void* const* sources, int count, std::int64_t elements, WireElement element) {
  switch (element) {
    case WireElement::kFloat32:
      return sum_typed<float>(sum, sources, count, elements);
    case WireElement::kBFloat16:
      return sum_typed<BFloat16>(sum, sources, count, elements);
    case WireElement::kFloat16:
      return sum_typed<Float16>(sum, sources, count, elements);
  }
}

void add(float* sum, const void* const* sources, int count, std::int64_t elements, WireElement element) {
  switch (element) {
    case WireElement::kFloat32:
      return add_typed<float>(sum, sources, count, elements);
    case WireElement::kBFloat16:
      return add_typed<BFloat16>(sum, sources, count, elements);
    case WireElement::kFloat16:
      return add_typed<Float16>(sum, sources, count, elements);
  }
}

double squares(const float* values, std::int64_t elements) {
  constexpr int kLanes = 16;  // independent sums, so that the order does not depend on the instruction set
  double sums[kLanes] = {};
  std::int64_t begin = 0;
  for (; begin + kLanes <= elements; begin += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[begin + lane];
      sums[lane] += value * value;
    }
  }
  for (; begin < elements; ++begin) sums[begin % kLanes] += static_cast<double>(values[begin]) * values[begin];
  double total = 0;
  for (const double each : sums) total += each;
  return total;
}

}  // namespace

const SumLoops kSumLoops = {sum, add, squares};

}  // namespace tesser::hub::TESSER_LOOPS
