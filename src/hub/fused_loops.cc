// Compiled once for each instruction set; see cmake/TesserVectorized.cmake. The loops are plain, for the compiler to
// vectorise.
#include "hub/fused_loops.h"

#include "optimizer/update_elements.h"

namespace tesser::hub::TESSER_LOOPS {
namespace {

using namespace optimizer::TESSER_LOOPS;
using optimizer::AdamScalars;
using optimizer::SgdScalars;

template <int count>
inline float sum_at(const float* const (&sources)[count], std::int64_t i) {
  float sum = sources[0][i];
#pragma GCC unroll 8
  for (int source = 1; source < count; ++source) sum += sources[source][i];
  return sum;
}

template <int count>
inline void copy(const float* const* from, const float* (&to)[count]) {
  for (int source = 0; source < count; ++source) to[source] = from[source];
}

constexpr std::int64_t kLine = 16;  // elements: 64 bytes
// Lines that are asked for so far ahead. The processor's own prefetchers keep up with four arrays at once and fall
// behind with more, the more so at each end of a page.
constexpr std::int64_t kAhead = 2 * kLine;

// Calls update(i) for all elements, and fetch(i), which may ask for memory, once a line.
template <typename Fetch, typename Update>
inline void for_lines(std::int64_t elements, const Fetch& fetch, const Update& update) {
  std::int64_t line = 0;
  for (; line + kLine <= elements; line += kLine) {
    fetch(line + kAhead);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < kLine; ++i) update(line + i);
  }
  for (; line < elements; ++line) update(line);
}

template <int count>
inline void fetch_all(const float* const (&sources)[count], std::int64_t i) {
#pragma GCC unroll 8
  for (int source = 0; source < count; ++source) __builtin_prefetch(sources[source] + i);
}

template <int count, Momentum momentum, bool decays>
void sgd_loop(float* __restrict weights, float* __restrict buffer, const float* const* given, std::int64_t elements,
              const SgdScalars<float>& given_scalars) {
  const SgdScalars<float> scalars = given_scalars;
  const float* sources[count];
  copy<count>(given, sources);
  for_lines(
      elements,
      [&](std::int64_t i) __attribute__((always_inline)) {
        fetch_all<count>(sources, i);
        __builtin_prefetch(weights + i);
        if (momentum != Momentum::kNone) __builtin_prefetch(buffer + i);
      },
      [&](std::int64_t i) __attribute__((always_inline)) {
        sgd_element<momentum, decays>(weights[i], sum_at<count>(sources, i),
                                      momentum == Momentum::kNone ? nullptr : buffer + i, scalars);
      });
}

template <int count, Decay decay>
void adam_loop(float* __restrict weights, float* __restrict average, float* __restrict square,
               const float* const* given, std::int64_t elements, const AdamScalars<float>& given_scalars) {
  const AdamScalars<float> scalars = given_scalars;
  const float* sources[count];
  copy<count>(given, sources);
  for_lines(
      elements,
      [&](std::int64_t i) __attribute__((always_inline)) {
        fetch_all<count>(sources, i);
        __builtin_prefetch(weights + i);
        __builtin_prefetch(average + i);
        __builtin_prefetch(square + i);
      },
      [&](std::int64_t i) __attribute__((always_inline)) {
        adam_element<decay, false, true, float>(weights[i], sum_at<count>(sources, i), average[i], square[i], nullptr,
                                                scalars);
      });
}

template <int count, Momentum momentum>
void sgd_decaying(float* weights, float* buffer, const float* const* sources, std::int64_t elements,
                  const SgdScalars<float>& scalars) {
  (scalars.weight_decay != 0 ? sgd_loop<count, momentum, true>
                             : sgd_loop<count, momentum, false>)(weights, buffer, sources, elements, scalars);
}

// Calls its smaller sibling for fewer sources.
template <int most>
void sgd_of(float* weights, float* buffer, const float* const* sources, int count, std::int64_t elements,
            const SgdScalars<float>& scalars) {
  if constexpr (most > 1) {
    if (count < most) return sgd_of<most - 1>(weights, buffer, sources, count, elements, scalars);
  }
  if (buffer == nullptr) return sgd_decaying<most, Momentum::kNone>(weights, buffer, sources, elements, scalars);
  if (scalars.nesterov) return sgd_decaying<most, Momentum::kNesterov>(weights, buffer, sources, elements, scalars);
  sgd_decaying<most, Momentum::kPlain>(weights, buffer, sources, elements, scalars);
}

template <int most>
void adam_of(float* weights, float* average, float* square, const float* const* sources, int count,
             std::int64_t elements, const AdamScalars<float>& scalars) {
  if constexpr (most > 1) {
    if (count < most) return adam_of<most - 1>(weights, average, square, sources, count, elements, scalars);
  }
  auto* loop = adam_loop<most, Decay::kNone>;
  if (scalars.decoupled) {
    loop = adam_loop<most, Decay::kParameter>;
  } else if (scalars.weight_decay != 0) {
    loop = adam_loop<most, Decay::kGradient>;
  }
  loop(weights, average, square, sources, elements, scalars);
}

bool sgd(float* weights, float* buffer, const float* const* sources, int count, std::int64_t elements,
         const SgdScalars<float>& scalars) {
  if (count < 1 || count > kMostFused || (buffer != nullptr && scalars.first_step)) return false;
  sgd_of<kMostFused>(weights, buffer, sources, count, elements, scalars);
  return true;
}

bool adam(float* weights, float* average, float* square, const float* const* sources, int count, std::int64_t elements,
          const AdamScalars<float>& scalars) {
  if (count < 1 || count > kMostFused || scalars.rate1 >= 0.5F) return false;
  adam_of<kMostFused>(weights, average, square, sources, count, elements, scalars);
  return true;
}

}  // namespace

const FusedLoops kFusedLoops = {sgd, adam};

}  // namespace tesser::hub::TESSER_LOOPS
