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

// Which elements of the whole tensor: [begin, end).
struct Range {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t count() const { return std::max<std::int64_t>(end - begin, 0); }
};
// Or the elements [first, last) of a part.
struct PartRange {
  const TensorPart& part;
  std::int64_t first;
  std::int64_t last;
  std::int64_t count() const { return std::max<std::int64_t>(last - first, 0); }
};

// Calls use(words, element, at, count) for the words of a range in pieces: `words` holds those of elements element,
// element + 1, ... of the whole tensor, which are number at, at + 1, ... of the range. The words of their blocks stand
// around them.
template <typename Use>
void for_words(const Range& range, const PhiloxStream& stream, const Use& use) {
  alignas(64) std::array<std::uint32_t, 4 * kBlocks> words;  // written before it is read
  for (std::int64_t begin = range.begin; begin < range.end;) {
    const std::int64_t first_block = begin / 4;
    const std::int64_t stop = std::min(range.end, 4 * (first_block + kBlocks));
    loops().words(words.data(), static_cast<std::uint64_t>(first_block), (stop + 3) / 4 - first_block, stream);
    use(words.data() + (begin - 4 * first_block), begin, begin - range.begin, stop - begin);
    begin = stop;
  }
}

// Short runs are gathered, so that narrow columns of a tensor are computed as many blocks at a time as rows are.
template <typename Use>
void for_words(const PartRange& range, const PhiloxStream& stream, const Use& use) {
  struct Run {
    std::int64_t word;
    std::int64_t element;
    std::int64_t at;
    std::int64_t count;
  };
  alignas(64) std::array<std::uint32_t, 4 * kBlocks> words;
  std::array<std::uint64_t, kBlocks> blocks;
  std::array<Run, 4 * kBlocks> runs;
  std::int64_t block_count = 0;
  std::size_t run_count = 0;
  const auto flush = [&] {
    loops().scattered_words(words.data(), blocks.data(), block_count, stream);
    for (std::size_t i = 0; i < run_count; ++i) {
      use(words.data() + runs[i].word, runs[i].element, runs[i].at, runs[i].count);
    }
    block_count = 0;
    run_count = 0;
  };
  range.part.for_runs(range.first, range.last, [&](std::int64_t local, std::int64_t element, std::int64_t count) {
    const std::int64_t at = local - range.first;
    if (count > 4 * (kBlocks - 1)) {
      for_words(Range{element, element + count}, stream,
                [&](const std::uint32_t* piece, std::int64_t from, std::int64_t offset, std::int64_t length) {
                  use(piece, from, at + offset, length);
                });
      return;
    }
    const std::int64_t first_block = element / 4;
    const std::int64_t end_block = (element + count + 3) / 4;
    // Neighbouring runs may begin in the block where the one before ended.
    const bool shared =
        block_count > 0 && blocks[static_cast<std::size_t>(block_count - 1)] == static_cast<std::uint64_t>(first_block);
    const std::int64_t added = end_block - first_block - (shared ? 1 : 0);
    const bool full = block_count + added > kBlocks || run_count == runs.size();
    if (full) flush();
    const std::int64_t slot = shared && !full ? block_count - 1 : block_count;
    for (std::int64_t block = first_block; block < end_block; ++block) {
      blocks[static_cast<std::size_t>(slot + block - first_block)] = static_cast<std::uint64_t>(block);
    }
    block_count = slot + end_block - first_block;
    runs[run_count++] = {4 * slot + element - 4 * first_block, element, at, count};
  });
  flush();
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

template <typename Element, typename Elements>
void drop(const Element* x, Element* result, const Elements& elements, double p, const PhiloxStream& stream) {
  const std::int32_t threshold = threshold_of(p);
  if (p == 1) {
    std::fill(result, result + elements.count(), Element{0});
    return;
  }
  const Element scale = scale_of<Element>(p);
  for_words(elements, stream, [&](const std::uint32_t* words, std::int64_t, std::int64_t at, std::int64_t count) {
    apply_mask(x + at, result + at, words, count, threshold, scale);
    // As much of the next piece comes from memory while its words are computed.
    const std::int64_t next_end = std::min(at + 2 * count, elements.count());
    for (std::int64_t next = at + count; next < next_end;
         next += kLineBytes / static_cast<std::int64_t>(sizeof(Element))) {
      __builtin_prefetch(x + next);
      __builtin_prefetch(result + next, 1);
    }
  });
}

// Elements [begin, end), counted from the first of `channels`, `inner` a channel.
template <typename Element, typename Channels>
void drop_channels(const Element* x, Element* result, const Channels& channels, std::int64_t begin, std::int64_t end,
                   std::int64_t inner, double p, const PhiloxStream& stream) {
  if (begin >= end) return;
  const std::int32_t threshold = threshold_of(p);
  if (p == 1) {
    std::fill(result, result + (end - begin), Element{0});
    return;
  }
  const Element scale = scale_of<Element>(p);
  for_words(channels, stream, [&](const std::uint32_t* words, std::int64_t, std::int64_t at, std::int64_t count) {
    for (std::int64_t channel = at; channel < at + count; ++channel) {
      const std::int64_t from = std::max(begin, channel * inner) - begin;
      const std::int64_t to = std::min(end, (channel + 1) * inner) - begin;
      if (static_cast<std::int32_t>(words[channel - at] >> 8) >= threshold) {
        std::transform(x + from, x + to, result + from, [scale](Element value) { return value * scale; });
      } else {
        std::fill(result + from, result + to, Element{0});
      }
    }
  });
}

template <typename Element>
void drop_channels(const Element* x, Element* result, std::int64_t begin, std::int64_t end, std::int64_t inner,
                   double p, const PhiloxStream& stream) {
  if (begin >= end) return;
  const Range channels{begin / inner, (end - 1) / inner + 1};
  drop_channels(x, result, channels, begin - channels.begin * inner, end - channels.begin * inner, inner, p, stream);
}

template <typename Element>
void drop_channels(const Element* x, Element* result, const PartRange& channels, std::int64_t inner, double p,
                   const PhiloxStream& stream) {
  drop_channels(x, result, channels, 0, channels.count() * inner, inner, p, stream);
}

template <typename Elements>
void fill_uniform(float* result, const Elements& elements, double low, double high, const PhiloxStream& stream) {
  for_words(elements, stream, [&](const std::uint32_t* words, std::int64_t, std::int64_t at, std::int64_t count) {
    loops().uniform(result + at, words, count, static_cast<float>(low), static_cast<float>(high - low));
  });
}

template <typename Elements>
void fill_normal(float* result, const Elements& elements, double mean, double std, const PhiloxStream& stream) {
  for_words(elements, stream,
            [&](const std::uint32_t* words, std::int64_t element, std::int64_t at, std::int64_t count) {
              // Pairs of words make pairs of numbers; a run that begins or ends inside a pair uses half of it.
              for (std::int64_t i = -(element % 2); i < count; i += 2) {
                const double u1 = (static_cast<double>(words[i] >> 8) + 1) * 0x1p-24;
                const double angle = 2 * std::numbers::pi * (static_cast<double>(words[i + 1] >> 8) * 0x1p-24);
                const double radius = std * std::sqrt(-2 * std::log(u1));
                if (i >= 0) result[at + i] = static_cast<float>(mean + radius * std::cos(angle));
                if (i + 1 < count) result[at + i + 1] = static_cast<float>(mean + radius * std::sin(angle));
              }
            });
}

void apply_bernoulli(const float* p, float* result, const std::uint32_t* words, std::int64_t count) {
  loops().bernoulli_float(p, result, words, count);
}
void apply_bernoulli(const double* p, double* result, const std::uint32_t* words, std::int64_t count) {
  loops().bernoulli_double(p, result, words, count);
}

template <typename Element, typename Elements>
void fill_bernoulli(const Element* p, Element* result, const Elements& elements, const PhiloxStream& stream) {
  for_words(elements, stream, [&](const std::uint32_t* words, std::int64_t, std::int64_t at, std::int64_t count) {
    apply_bernoulli(p + at, result + at, words, count);
  });
}

template <typename Elements>
void fill_randint(std::int64_t* result, const Elements& elements, std::int64_t low, std::int64_t high,
                  const PhiloxStream& stream) {
  const auto range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  TESSER_CHECK(high > low && range <= std::uint64_t{1} << 32, std::to_string(low) + " and " + std::to_string(high));
  for_words(elements, stream, [&](const std::uint32_t* words, std::int64_t, std::int64_t at, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      result[at + i] = low + static_cast<std::int64_t>((words[i] * range) >> 32);
    }
  });
}

}  // namespace

void dropout(const float* x, float* result, std::int64_t begin, std::int64_t end, double p, std::uint64_t seed,
             std::int64_t step, std::int64_t id) {
  drop(x, result, Range{begin, end}, p, stream_of(seed, step, id));
}

void dropout(const float* x, float* result, const TensorPart& part, std::int64_t first, std::int64_t last, double p,
             std::uint64_t seed, std::int64_t step, std::int64_t id) {
  drop(x, result, PartRange{part, first, last}, p, stream_of(seed, step, id));
}

void dropout_channels(const float* x, float* result, std::int64_t begin, std::int64_t end, std::int64_t inner, double p,
                      std::uint64_t seed, std::int64_t step, std::int64_t id) {
  drop_channels(x, result, begin, end, inner, p, stream_of(seed, step, id));
}

void dropout_channels(const float* x, float* result, const TensorPart& part, std::int64_t first, std::int64_t last,
                      std::int64_t inner, double p, std::uint64_t seed, std::int64_t step, std::int64_t id) {
  drop_channels(x, result, PartRange{part, first, last}, inner, p, stream_of(seed, step, id));
}

void bernoulli(const float* p, float* result, std::int64_t begin, std::int64_t end, std::uint64_t seed,
               std::int64_t step, std::int64_t id) {
  fill_bernoulli(p, result, Range{begin, end}, stream_of(seed, step, id));
}

void bernoulli(const float* p, float* result, const TensorPart& part, std::int64_t first, std::int64_t last,
               std::uint64_t seed, std::int64_t step, std::int64_t id) {
  fill_bernoulli(p, result, PartRange{part, first, last}, stream_of(seed, step, id));
}

void dropout(const double* x, double* result, std::int64_t begin, std::int64_t end, double p, std::uint64_t seed,
             std::int64_t step, std::int64_t id) {
  drop(x, result, Range{begin, end}, p, stream_of(seed, step, id));
}

void dropout(const double* x, double* result, const TensorPart& part, std::int64_t first, std::int64_t last, double p,
             std::uint64_t seed, std::int64_t step, std::int64_t id) {
  drop(x, result, PartRange{part, first, last}, p, stream_of(seed, step, id));
}

void dropout_channels(const double* x, double* result, std::int64_t begin, std::int64_t end, std::int64_t inner,
                      double p, std::uint64_t seed, std::int64_t step, std::int64_t id) {
  drop_channels(x, result, begin, end, inner, p, stream_of(seed, step, id));
}

void dropout_channels(const double* x, double* result, const TensorPart& part, std::int64_t first, std::int64_t last,
                      std::int64_t inner, double p, std::uint64_t seed, std::int64_t step, std::int64_t id) {
  drop_channels(x, result, PartRange{part, first, last}, inner, p, stream_of(seed, step, id));
}

void bernoulli(const double* p, double* result, std::int64_t begin, std::int64_t end, std::uint64_t seed,
               std::int64_t step, std::int64_t id) {
  fill_bernoulli(p, result, Range{begin, end}, stream_of(seed, step, id));
}

void bernoulli(const double* p, double* result, const TensorPart& part, std::int64_t first, std::int64_t last,
               std::uint64_t seed, std::int64_t step, std::int64_t id) {
  fill_bernoulli(p, result, PartRange{part, first, last}, stream_of(seed, step, id));
}

void uniform(float* result, std::int64_t begin, std::int64_t end, double low, double high, std::uint64_t seed,
             std::int64_t step, std::int64_t id) {
  fill_uniform(result, Range{begin, end}, low, high, stream_of(seed, step, id));
}

void uniform(float* result, const TensorPart& part, std::int64_t first, std::int64_t last, double low, double high,
             std::uint64_t seed, std::int64_t step, std::int64_t id) {
  fill_uniform(result, PartRange{part, first, last}, low, high, stream_of(seed, step, id));
}

void normal(float* result, std::int64_t begin, std::int64_t end, double mean, double std, std::uint64_t seed,
            std::int64_t step, std::int64_t id) {
  fill_normal(result, Range{begin, end}, mean, std, stream_of(seed, step, id));
}

void normal(float* result, const TensorPart& part, std::int64_t first, std::int64_t last, double mean, double std,
            std::uint64_t seed, std::int64_t step, std::int64_t id) {
  fill_normal(result, PartRange{part, first, last}, mean, std, stream_of(seed, step, id));
}

void randint(std::int64_t* result, std::int64_t begin, std::int64_t end, std::int64_t low, std::int64_t high,
             std::uint64_t seed, std::int64_t step, std::int64_t id) {
  fill_randint(result, Range{begin, end}, low, high, stream_of(seed, step, id));
}

void randint(std::int64_t* result, const TensorPart& part, std::int64_t first, std::int64_t last, std::int64_t low,
             std::int64_t high, std::uint64_t seed, std::int64_t step, std::int64_t id) {
  fill_randint(result, PartRange{part, first, last}, low, high, stream_of(seed, step, id));
}

void philox_words(std::uint32_t* words, std::uint64_t first_block, std::int64_t block_count, std::uint64_t seed,
                  std::int64_t step, std::int64_t id) {
  loops().words(words, first_block, block_count, stream_of(seed, step, id));
}

}  // namespace tesser::kernels
