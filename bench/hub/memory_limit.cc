#include "hub/memory_limit.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/mman.h>

#include "hub/fused_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tesser::bench {
namespace {

constexpr std::int64_t kElements = std::int64_t{1} << 26;  // of all threads: 256 MiB an array

constexpr int kMostArrays = 10;

struct Arrays {
  std::array<float*, kMostArrays> all{};  // the first three of STREAM, as many elements as there are; others fewer
  float* a = nullptr;
  const float* b = nullptr;
  const float* c = nullptr;
  std::int64_t elements = 0;
};

struct Kernel {
  const char* name;
  int arrays;  // read and written
  void (*run)(const Arrays&);
  bool is_exchange = false;
};

#define TESSER_EVERY_SET \
  __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3", "no-tree-loop-distribute-patterns")))

TESSER_EVERY_SET void copy(const Arrays& arrays) {
  float* __restrict a = arrays.a;
  const float* __restrict b = arrays.b;
  for (std::int64_t index = 0; index < arrays.elements; ++index) {
    a[index] = b[index];
  }
}

TESSER_EVERY_SET void add(const Arrays& arrays) {
  float* __restrict a = arrays.a;
  const float* __restrict b = arrays.b;
  const float* __restrict c = arrays.c;
  for (std::int64_t index = 0; index < arrays.elements; ++index) {
    a[index] = b[index] + c[index];
  }
}

TESSER_EVERY_SET void triad(const Arrays& arrays) {
  float* __restrict a = arrays.a;
  const float* __restrict b = arrays.b;
  const float* __restrict c = arrays.c;
  for (std::int64_t index = 0; index < arrays.elements; ++index) {
    a[index] = b[index] + 3.0F * c[index];
  }
}

// Arrays that are updated where they lie: as an optimizer does it, and without lines that are fetched to be
// overwritten.
TESSER_EVERY_SET void update(const Arrays& arrays) {
  float* __restrict a = arrays.a;
  const float* __restrict b = arrays.b;
  for (std::int64_t index = 0; index < arrays.elements; ++index) {
    a[index] = 0.5F * a[index] + b[index];
  }
}

#if defined(__x86_64__)
void copy_past_caches(const Arrays& arrays) {
  for (std::int64_t index = 0; index < arrays.elements; index += 4) {
    _mm_stream_ps(arrays.a + index, _mm_load_ps(arrays.b + index));
  }
  _mm_sfence();
}

void add_past_caches(const Arrays& arrays) {
  for (std::int64_t index = 0; index < arrays.elements; index += 4) {
    _mm_stream_ps(arrays.a + index, _mm_add_ps(_mm_load_ps(arrays.b + index), _mm_load_ps(arrays.c + index)));
  }
  _mm_sfence();
}

void triad_past_caches(const Arrays& arrays) {
  const __m128 factor = _mm_set1_ps(3.0F);
  for (std::int64_t index = 0; index < arrays.elements; index += 4) {
    const __m128 product = _mm_mul_ps(factor, _mm_load_ps(arrays.c + index));
    _mm_stream_ps(arrays.a + index, _mm_add_ps(_mm_load_ps(arrays.b + index), product));
  }
  _mm_sfence();
}
#endif

// An exchange of N workers' gradients with nobody but its loop: SGD with momentum, or Adam.
constexpr std::int64_t kChunk = 1 << 16;  // elements

template <int workers>
void exchange_sgd(const Arrays& arrays) {
  const optimizer::SgdScalars<float> scalars = {1.0F / workers, 0, 0.9F, 1, -1e-4F, false, false};
  for (std::int64_t begin = 0; begin < arrays.elements; begin += kChunk) {
    std::array<const float*, workers> gradients{};
    for (int worker = 0; worker < workers; ++worker) {
      gradients[worker] = arrays.all[2 + worker] + begin;
    }
    hub::fused_loops().sgd(arrays.all[0] + begin, arrays.all[1] + begin, gradients.data(), workers,
                           std::min(kChunk, arrays.elements - begin), scalars);
  }
}

template <int workers>
void exchange_adam(const Arrays& arrays) {
  const optimizer::AdamScalars<float> scalars = {1.0F / workers, 0, 1, 0.1F, 0.999F, 1e-3F, 0.5F, 1e-8F, -1e-4F, false};
  for (std::int64_t begin = 0; begin < arrays.elements; begin += kChunk) {
    std::array<const float*, workers> gradients{};
    for (int worker = 0; worker < workers; ++worker) {
      gradients[worker] = arrays.all[3 + worker] + begin;
    }
    hub::fused_loops().adam(arrays.all[0] + begin, arrays.all[1] + begin, arrays.all[2] + begin, gradients.data(),
                            workers, std::min(kChunk, arrays.elements - begin), scalars);
  }
}

constexpr Kernel kKernels[] = {
    {"copy", 2, copy},
    {"add", 3, add},
    {"triad", 3, triad},
    {"update", 3, update},
#if defined(__x86_64__)
    {"copy non-temporal", 2, copy_past_caches},
    {"add non-temporal", 3, add_past_caches},
    {"triad non-temporal", 3, triad_past_caches},
#endif
    {"exchange sgd 2", 6, exchange_sgd<2>, true},
    {"exchange sgd 4", 8, exchange_sgd<4>, true},
    {"exchange sgd 8", 12, exchange_sgd<8>, true},
    {"exchange adam 2", 8, exchange_adam<2>, true},
    {"exchange adam 4", 10, exchange_adam<4>, true},
};

// Private memory, for which the kernel has pages of 2 MiB when asked; or as processes share it, in pages of 4 KiB.
float* allocate(std::int64_t elements, bool huge_pages) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  const int kind = huge_pages ? MAP_PRIVATE : MAP_SHARED;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("no memory for the arrays of the memory limit");
    std::exit(1);
  }
  ::madvise(memory, bytes, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::fill_n(static_cast<float*>(memory), elements, 1.0F);
  return static_cast<float*>(memory);
}

// Arrays that begin a page and a line apart beyond their size, as a hub's do.
Arrays arrays_of(std::int64_t elements, int count, bool huge_pages) {
  constexpr std::int64_t kStagger = 1024 + 16;
  const std::int64_t pitch = elements + kStagger;
  float* memory = allocate(count * pitch, huge_pages);
  Arrays arrays;
  for (int array = 0; array < count; ++array) {
    arrays.all[static_cast<std::size_t>(array)] = memory + array * pitch;
  }
  arrays.a = arrays.all[0];
  arrays.b = arrays.all[1];
  arrays.c = arrays.all[2];
  arrays.elements = elements;
  return arrays;
}

void bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ::sched_setaffinity(0, sizeof(set), &set);  // where it is refused the thread runs anywhere
}

}  // namespace

int measure_memory_limit(std::chrono::milliseconds time_of_each, bool huge_pages) {
  using Clock = std::chrono::steady_clock;
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<double> best(std::size(kKernels), 0);
  std::vector<char> goes_on(1, 1);
  std::barrier barrier(threads);
  const auto body = [&](int thread) {
    bind_to(thread);
    const std::int64_t elements = kElements / threads / 16 * 16;
    const Arrays stream = arrays_of(elements, 3, huge_pages);
    const Arrays exchange = arrays_of(elements / 4 / 16 * 16, kMostArrays, huge_pages);
    for (std::size_t number = 0; number < std::size(kKernels); ++number) {
      const Kernel& kernel = kKernels[number];
      const Arrays& arrays = kernel.is_exchange ? exchange : stream;
      kernel.run(arrays);
      const auto end = Clock::now() + time_of_each;
      do {
        barrier.arrive_and_wait();
        const auto begin = Clock::now();
        kernel.run(arrays);
        barrier.arrive_and_wait();
        if (thread == 0) {
          const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
          const double bytes = static_cast<double>(kernel.arrays * arrays.elements * threads) * sizeof(float);
          best[number] = std::max(best[number], bytes / seconds * 1e-9);
          goes_on[0] = Clock::now() < end ? 1 : 0;
        }
        barrier.arrive_and_wait();
      } while (goes_on[0] != 0);
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) {
    others.emplace_back(body, thread);
  }
  body(0);
  for (std::thread& other : others) {
    other.join();
  }
  for (std::size_t number = 0; number < std::size(kKernels); ++number) {
    std::printf("%s\"%s\": %.4g", number == 0 ? "{" : ", ", kKernels[number].name, best[number]);
  }
  std::printf("}\n");
  return 0;
}

}  // namespace tesser::bench
