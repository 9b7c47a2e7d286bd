// The sum of replicas' gradients, in the order of the replicas, in float32. Compiled once for each instruction set; any
// division of a tensor into ranges gives the same bits, and so does every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tesser::hub {

// Elements of a source: float32, bfloat16 or float16.
enum class WireElement : std::uint8_t { kFloat32, kBFloat16, kFloat16 };

struct SumLoops {
  // sum[i] = sources[0][i] + ... + sources[count - 1][i], from the left, for i < elements.
  void (*sum)(float* sum, const void* const* sources, int count, std::int64_t elements, WireElement element);
  // sum[i] = ((sum[i] + sources[0][i]) + ...).
  void (*add)(float* sum, const void* const* sources, int count, std::int64_t elements, WireElement element);
  // Of the elements, in double, in a fixed order.
  double (*squares)(const float* values, std::int64_t elements);
};

// Of the best instruction set that this processor has.
const SumLoops& sum_loops();

namespace portable {
extern const SumLoops kSumLoops;
}
namespace avx2 {
extern const SumLoops kSumLoops;
}
namespace avx512 {
extern const SumLoops kSumLoops;
}

}  // namespace tesser::hub
