// Vector instruction sets of this processor, for code that is compiled once for each and chosen at run time
// (cmake/TesserVectorized.cmake).
#pragma once

#include <cstdint>

namespace tesser {

enum class InstructionSet : std::uint8_t { kPortable, kAvx2, kAvx512 };

// The best set that this processor and the compiled code have. kAvx2 means AVX2 and FMA, kAvx512 means F, BW, DQ and
// VL.
inline InstructionSet best_instruction_set() {
#if defined(__x86_64__)
  static const InstructionSet best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      return InstructionSet::kAvx512;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? InstructionSet::kAvx2
                                                                           : InstructionSet::kPortable;
  }();
  return best;
#else
  return InstructionSet::kPortable;
#endif
}

}  // namespace tesser
