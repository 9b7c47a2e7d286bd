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

template <typename Element>
void assign(float* __restrict sum, const Element* __restrict first, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) sum[i] = widen(first[i]);
}

template <typename Element>
void assign(float* __restrict sum, const Element* __restrict first, const Element* __restrict second,
            std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) sum[i] = widen(first[i]) + widen(second[i]);
}

template <typename Element>
void add_one(float* __restrict sum, const Element* __restrict first, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) sum[i] += widen(first[i]);
}

template <typename Element>
void add_two(float* __restrict sum, const Element* __restrict first, const Element* __restrict second,
             std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) sum[i] = (sum[i] + widen(first[i])) + widen(second[i]);
}

// Blocks whose sum stays in the cache closest to the core.
constexpr std::int64_t kBlock = 2048;

template <typename Element>
void add_all(float* sum, const void* const* sources, int count, std::int64_t begin, std::int64_t elements) {
  int source = 0;
  for (; source + 1 < count; source += 2) {
    add_two(sum + begin, static_cast<const Element*>(sources[source]) + begin,
            static_cast<const Element*>(sources[source + 1]) + begin, elements);
  }
  if (source < count) add_one(sum + begin, static_cast<const Element*>(sources[source]) + begin, elements);
}

template <typename Element>
void add_typed(float* sum, const void* const* sources, int count, std::int64_t elements) {
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    add_all<Element>(sum, sources, count, begin, elements - begin < kBlock ? elements - begin : kBlock);
  }
}

template <typename Element>
void sum_typed(float* sum, const void* const* sources, int count, std::int64_t elements) {
  const auto* first = static_cast<const Element*>(sources[0]);
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t size = elements - begin < kBlock ? elements - begin : kBlock;
    if (count == 1) {
      assign(sum + begin, first + begin, size);
    } else {
      assign(sum + begin, first + begin, static_cast<const Element*>(sources[1]) + begin, size);
      add_all<Element>(sum, sources + 2, count - 2, begin, size);
    }
  }
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
