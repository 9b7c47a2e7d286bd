#include "cli/waiting_threads.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace tesser::cli {
namespace {

// About twice what it costs to put a thread to sleep and wake it.
constexpr std::chrono::nanoseconds kSpin{100'000};
constexpr int kPauses = 200;
constexpr int kTries = 5;

// What OpenMP's library does between two looks, 10 to 150 cycles according to the processor.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("" ::: "memory");
#endif
}

std::int64_t pauses_in(std::chrono::nanoseconds time) {
  std::chrono::nanoseconds least = std::chrono::nanoseconds::max();
  for (int attempt = 0; attempt < kTries; ++attempt) {  // another process may have the processor in some
    const auto begin = std::chrono::steady_clock::now();
    for (int number = 0; number < kPauses; ++number) {
      pause();
    }
    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - begin);
  }
  return time.count() * kPauses / std::max<std::int64_t>(least.count(), 1);
}

}  // namespace

void bound_spinning() {
  if (std::getenv("GOMP_SPINCOUNT") == nullptr && std::getenv("OMP_WAIT_POLICY") == nullptr) {
    ::setenv("GOMP_SPINCOUNT", std::to_string(pauses_in(kSpin)).c_str(), 1);
  }
}

}  // namespace tesser::cli
