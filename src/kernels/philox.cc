#include "kernels/philox.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "base/check.h"
#include "kernels/philox_loops.h"

namespace tesser::kernels {

namespace {

constexpr std::int64_t kBlocks = 32;  // in one go: short, so that computing and memory overlap
constexpr std::int64_t kLineBytes = 64;

const PhiloxLoops& loops() {
#if defined(__x86_64__)
  if (best_instruction_set() == InstructionSet::kAvx512) return avx512::kPhiloxLoops;
  if (best_instruction_set() == InstructionSet::kAvx2) return avx2::kPhiloxLoops;
#endif
  return portable::kPhiloxLoops;
}

PhiloxStream stream_of(std::uint64_t seed, std::int64_t step, std::int64_t id) {
  return {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          static_cast<std::uint32_t>(id),
          static_cast<std::uint32_t>(step)};
}

// Calls use(words, first, count) for words [begin, end) of the stream in pieces: `words` holds those of elements first,
// first + 1, ...
template <typename Use>
void for_words(std::int64_t begin, std::int64_t end, const PhiloxStream& stream, Use use) {
  alignas(64) std::array<std::uint32_t, 4 * kBlocks> words;  // written before it is read
  while (begin < end) {
    const std::int64_t first_block = begin / 4;
    const std::int64_t stop = std::min(end, 4 * (first_block + kBlocks));
    loops().words(words.data(), static_cast<std::uint64_t>(first_block), (stop + 3) / 4 - first_block, stream);
    use(words.data() + (begin - 4 * first_block), begin, stop - begin);
    begin = stop;
  }
}

// A word is kept when word >> 8 is at least this; 2^24 keeps none.
std::int32_t threshold_of(double p) {
  TESSER_CHECK(p >= 0 && p <= 1, std::to_string(p));
  return static_cast<std::int32_t>(std::ceil(p * 0x1p24));
}

template <typename Element>
Element scale_of(double p) {
  return static_cast<Element>(static_cast<float>(1 / (1 - p)));
}

void apply_mask(const float* x, float* result, const std::uint32_t* words, std::int64_t count, std::int32_t threshold,
                float scale) {
  loops().dropout_float(x, result, words, count, threshold, scale);
}
void apply_mask(const double* x, double* result, const std::uint32_t* words, std::int64_t count, std::int32_t threshold,
                double scale) {
  loops().dropout_double(x, result, words, count, threshold, scale);
}

template <typename Element>
void drop(const Element* x, Element* result, std::int64_t begin, std::int64_t end, double p,
          const PhiloxStream& stream) {
  const std::int32_t threshold = threshold_of(p);
  if (p == 1) {
    std::fill(result, result + (end - begin), Element{0});
    return;
  }
  const Element scale = scale_of<Element>(p);
  for_words(begin, end, stream, [&](const std::uint32_t* words, std::int64_t first, std::int64_t count) {
    const std::int64_t at = first - begin;
    apply_mask(x + at, result + at, words, count, threshold, scale);
    // The next piece comes from memory while its words are computed.
    const std::int64_t next_end = std::min(at + count + 4 * kBlocks, end - begin);
    for (std::int64_t next = at + count; next < next_end;
         next += kLineBytes / static_cast<std::int64_t>(sizeof(Element))) {
      __builtin_prefetch(x + next);
      __builtin_prefetch(result + next, 1);
    }
  });
}

template <typename Element>
void drop_channels(const Element* x, Element* result, std::int64_t begin, std::int64_t end, std::int64_t inner,
                   double p, const PhiloxStream& stream) {
  if (begin >= end) return;
  const std::int32_t threshold = threshold_of(p);
  if (p == 1) {
    std::fill(result, result + (end - begin), Element{0});
    return;
  }
  const Element scale = scale_of<Element>(p);
  for_words(begin / inner, (end - 1) / inner + 1, stream,
            [&](const std::uint32_t* words, std::int64_t first, std::int64_t count) {
              for (std::int64_t channel = first; channel < first + count; ++channel) {
                const std::int64_t from = std::max(begin, channel * inner) - begin;
                const std::int64_t to = std::min(end, (channel + 1) * inner) - begin;
                if (static_cast<std::int32_t>(words[channel - first] >> 8) >= threshold) {
                  std::transform(x + from, x + to, result + from, [scale](Element value) { return value * scale; });
                } else {
                  std::fill(result + from, result + to, Element{0});
                }
              }
            });
}

}  // namespace

void dropout(const float* x, float* result, std::int64_t begin, std::int64_t end, double p, std::uint64_t seed,
             std::int64_t step, std::int64_t id) {
  drop(x, result, begin, end, p, stream_of(seed, step, id));
}

void dropout(const double* x, double* result, std::int64_t begin, std::int64_t end, double p, std::uint64_t seed,
             std::int64_t step, std::int64_t id) {
  drop(x, result, begin, end, p, stream_of(seed, step, id));
}

void dropout_channels(const float* x, float* result, std::int64_t begin, std::int64_t end, std::int64_t inner, double p,
                      std::uint64_t seed, std::int64_t step, std::int64_t id) {
  drop_channels(x, result, begin, end, inner, p, stream_of(seed, step, id));
}

void dropout_channels(const double* x, double* result, std::int64_t begin, std::int64_t end, std::int64_t inner,
                      double p, std::uint64_t seed, std::int64_t step, std::int64_t id) {
  drop_channels(x, result, begin, end, inner, p, stream_of(seed, step, id));
}

void uniform(float* result, std::int64_t begin, std::int64_t end, double low, double high, std::uint64_t seed,
             std::int64_t step, std::int64_t id) {
  for_words(begin, end, stream_of(seed, step, id),
            [&](const std::uint32_t* words, std::int64_t first, std::int64_t count) {
              loops().uniform(result + (first - begin), words, count, static_cast<float>(low),
                              static_cast<float>(high - low));
            });
}

void normal(float* result, std::int64_t begin, std::int64_t end, double mean, double std, std::uint64_t seed,
            std::int64_t step, std::int64_t id) {
  // Whole pairs of words; an odd begin or end uses half of its pair.
  const std::int64_t pairs_begin = begin / 2 * 2;
  const std::int64_t pairs_end = (end + 1) / 2 * 2;
  for_words(pairs_begin, pairs_end, stream_of(seed, step, id),
            [&](const std::uint32_t* words, std::int64_t first, std::int64_t count) {
              for (std::int64_t i = 0; i < count; i += 2) {
                const double u1 = (static_cast<double>(words[i] >> 8) + 1) * 0x1p-24;
                const double angle = 2 * std::numbers::pi * (static_cast<double>(words[i + 1] >> 8) * 0x1p-24);
                const double radius = std * std::sqrt(-2 * std::log(u1));
                const std::int64_t element = first + i;
                if (element >= begin) result[element - begin] = static_cast<float>(mean + radius * std::cos(angle));
                if (element + 1 < end)
                  result[element + 1 - begin] = static_cast<float>(mean + radius * std::sin(angle));
              }
            });
}

void bernoulli(const float* p, float* result, std::int64_t begin, std::int64_t end, std::uint64_t seed,
               std::int64_t step, std::int64_t id) {
  for_words(begin, end, stream_of(seed, step, id),
            [&](const std::uint32_t* words, std::int64_t first, std::int64_t count) {
              loops().bernoulli_float(p + (first - begin), result + (first - begin), words, count);
            });
}

void bernoulli(const double* p, double* result, std::int64_t begin, std::int64_t end, std::uint64_t seed,
               std::int64_t step, std::int64_t id) {
  for_words(begin, end, stream_of(seed, step, id),
            [&](const std::uint32_t* words, std::int64_t first, std::int64_t count) {
              loops().bernoulli_double(p + (first - begin), result + (first - begin), words, count);
            });
}

void randint(std::int64_t* result, std::int64_t begin, std::int64_t end, std::int64_t low, std::int64_t high,
             std::uint64_t seed, std::int64_t step, std::int64_t id) {
  const auto range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  TESSER_CHECK(high > low && range <= std::uint64_t{1} << 32, std::to_string(low) + " and " + std::to_string(high));
  for_words(begin, end, stream_of(seed, step, id),
            [&](const std::uint32_t* words, std::int64_t first, std::int64_t count) {
              for (std::int64_t i = 0; i < count; ++i) {
                result[first + i - begin] = low + static_cast<std::int64_t>((words[i] * range) >> 32);
              }
            });
}

void philox_words(std::uint32_t* words, std::uint64_t first_block, std::int64_t block_count, std::uint64_t seed,
                  std::int64_t step, std::int64_t id) {
  loops().words(words, first_block, block_count, stream_of(seed, step, id));
}

}  // namespace tesser::kernels
