// The random operators' loops of one instruction set.
#pragma once

#include <cstdint>

#include "base/instruction_set.h"

namespace tesser::kernels {

// One operator's stream of words in one step.
struct PhiloxStream {
  std::uint32_t key[2];  // seed
  std::uint32_t id;
  std::uint32_t step;
};

// Loops over the `count` elements that take words offset, offset + 1, ... of an array. A mask keeps an element whose
// word >> 8 is at least `threshold`.
struct PhiloxLoops {
  void (*words)(std::uint32_t* words, std::uint64_t first_block, std::int64_t block_count, const PhiloxStream& stream);
  // The same for blocks that need not follow each other.
  void (*scattered_words)(std::uint32_t* words, const std::uint64_t* blocks, std::int64_t block_count,
                          const PhiloxStream& stream);
  void (*dropout_float)(const float* x, float* result, const std::uint32_t* words, std::int64_t count,
                        std::int32_t threshold, float scale);
  void (*dropout_double)(const double* x, double* result, const std::uint32_t* words, std::int64_t count,
                         std::int32_t threshold, double scale);
  void (*uniform)(float* result, const std::uint32_t* words, std::int64_t count, float low, float extent);
  void (*bernoulli_float)(const float* p, float* result, const std::uint32_t* words, std::int64_t count);
  void (*bernoulli_double)(const double* p, double* result, const std::uint32_t* words, std::int64_t count);
};

namespace portable {
extern const PhiloxLoops kPhiloxLoops;
}
namespace avx2 {
extern const PhiloxLoops kPhiloxLoops;
}
namespace avx512 {
extern const PhiloxLoops kPhiloxLoops;
}

}  // namespace tesser::kernels
