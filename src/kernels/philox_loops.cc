// Compiled once for each instruction set; see cmake/TesserVectorized.cmake.
#include "kernels/philox_loops.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tesser::kernels::TESSER_LOOPS {

namespace {

constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;

// Which block is number i: one after another, or as listed.
struct Ascending {
  std::uint64_t first;
  std::uint64_t operator[](std::int64_t i) const { return first + static_cast<std::uint64_t>(i); }
};
struct Listed {
  const std::uint64_t* blocks;
  std::uint64_t operator[](std::int64_t i) const { return blocks[i]; }
};

// One block at a time, from block number `begin` on.
template <typename Blocks>
void scalar_words(std::uint32_t* words, const Blocks& blocks, std::int64_t begin, std::int64_t end,
                  const PhiloxStream& stream) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint64_t block = blocks[i];
    std::uint64_t c0 = block & 0xFFFFFFFFU;
    std::uint64_t c1 = block >> 32;
    std::uint64_t c2 = stream.id;
    std::uint64_t c3 = stream.step;
    std::uint32_t key0 = stream.key[0];
    std::uint32_t key1 = stream.key[1];
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t product0 = c0 * kMultiplier0;
      const std::uint64_t product1 = c2 * kMultiplier1;
      c0 = (product1 >> 32) ^ c1 ^ key0;
      c1 = product1 & 0xFFFFFFFFU;
      c2 = (product0 >> 32) ^ c3 ^ key1;
      c3 = product0 & 0xFFFFFFFFU;
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    words[4 * i] = static_cast<std::uint32_t>(c0);
    words[4 * i + 1] = static_cast<std::uint32_t>(c1);
    words[4 * i + 2] = static_cast<std::uint32_t>(c2);
    words[4 * i + 3] = static_cast<std::uint32_t>(c3);
  }
}

#if defined(__AVX2__)

// A 64-bit lane holds one block's word in its low half. The upper half may hold anything while rounds run: the
// multiplication reads low halves.
#if defined(__AVX512F__)
constexpr std::int64_t kLanes = 8;
using Lanes = __m512i;
inline Lanes broadcast(std::uint64_t value) { return _mm512_set1_epi64(static_cast<long long>(value)); }
inline Lanes multiply(Lanes a, Lanes b) { return _mm512_mul_epu32(a, b); }
inline Lanes upper(Lanes a) { return _mm512_srli_epi64(a, 32); }
inline Lanes exclusive_or(Lanes a, Lanes b, Lanes c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
inline Lanes lanes_of(const Ascending& blocks, std::int64_t i) {
  return _mm512_add_epi64(broadcast(blocks[i]), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Lanes lanes_of(const Listed& blocks, std::int64_t i) { return _mm512_loadu_si512(blocks.blocks + i); }
inline Lanes join(Lanes low, Lanes high) { return _mm512_mask_blend_epi32(0xAAAA, low, _mm512_slli_epi64(high, 32)); }
inline void store(std::uint32_t* words, Lanes first, Lanes second) {
  const Lanes lower = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), second);
  const Lanes higher = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), second);
  _mm512_storeu_si512(words, lower);
  _mm512_storeu_si512(words + 16, higher);
}
#else
constexpr std::int64_t kLanes = 4;
using Lanes = __m256i;
inline Lanes broadcast(std::uint64_t value) { return _mm256_set1_epi64x(static_cast<long long>(value)); }
inline Lanes multiply(Lanes a, Lanes b) { return _mm256_mul_epu32(a, b); }
inline Lanes upper(Lanes a) { return _mm256_srli_epi64(a, 32); }
inline Lanes exclusive_or(Lanes a, Lanes b, Lanes c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
inline Lanes lanes_of(const Ascending& blocks, std::int64_t i) {
  return _mm256_add_epi64(broadcast(blocks[i]), _mm256_setr_epi64x(0, 1, 2, 3));
}
inline Lanes lanes_of(const Listed& blocks, std::int64_t i) {
  return _mm256_loadu_si256(reinterpret_cast<const Lanes*>(blocks.blocks + i));
}
inline Lanes join(Lanes low, Lanes high) { return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xAA); }
inline void store(std::uint32_t* words, Lanes first, Lanes second) {
  const Lanes even = _mm256_unpacklo_epi64(first, second);  // blocks 0 and 2
  const Lanes odd = _mm256_unpackhi_epi64(first, second);   // blocks 1 and 3
  _mm256_storeu_si256(reinterpret_cast<Lanes*>(words), _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(reinterpret_cast<Lanes*>(words + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}
#endif

// Groups whose rounds run interleaved, so that the multiplications' latency is hidden.
constexpr int kGroups = 4;

template <typename Blocks>
void any_words(std::uint32_t* words, const Blocks& blocks, std::int64_t block_count, const PhiloxStream& stream) {
  const Lanes multiplier0 = broadcast(kMultiplier0);
  const Lanes multiplier1 = broadcast(kMultiplier1);
  std::int64_t done = 0;
  for (; done + kGroups * kLanes <= block_count; done += kGroups * kLanes) {
    Lanes c0[kGroups];
    Lanes c1[kGroups];
    Lanes c2[kGroups];
    Lanes c3[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      c0[g] = lanes_of(blocks, done + g * kLanes);
      c1[g] = upper(c0[g]);
      c2[g] = broadcast(stream.id);
      c3[g] = broadcast(stream.step);
    }
    std::uint32_t key0 = stream.key[0];
    std::uint32_t key1 = stream.key[1];
    for (int round = 0; round < 10; ++round) {
      const Lanes keys0 = broadcast(key0);
      const Lanes keys1 = broadcast(key1);
      for (int g = 0; g < kGroups; ++g) {
        const Lanes product0 = multiply(c0[g], multiplier0);
        const Lanes product1 = multiply(c2[g], multiplier1);
        c0[g] = exclusive_or(upper(product1), c1[g], keys0);
        c1[g] = product1;
        c2[g] = exclusive_or(upper(product0), c3[g], keys1);
        c3[g] = product0;
      }
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    for (int g = 0; g < kGroups; ++g) {
      store(words + 4 * (done + g * kLanes), join(c0[g], c1[g]), join(c2[g], c3[g]));
    }
  }
  scalar_words(words, blocks, done, block_count, stream);
}

#else
template <typename Blocks>
void any_words(std::uint32_t* words, const Blocks& blocks, std::int64_t block_count, const PhiloxStream& stream) {
  scalar_words(words, blocks, 0, block_count, stream);
}
#endif

void words(std::uint32_t* words, std::uint64_t first_block, std::int64_t block_count, const PhiloxStream& stream) {
  any_words(words, Ascending{first_block}, block_count, stream);
}

void scattered_words(std::uint32_t* words, const std::uint64_t* blocks, std::int64_t block_count,
                     const PhiloxStream& stream) {
  any_words(words, Listed{blocks}, block_count, stream);
}

inline std::int32_t upper_bits(std::uint32_t word) { return static_cast<std::int32_t>(word >> 8); }

template <typename Element>
void dropout(const Element* x, Element* result, const std::uint32_t* words, std::int64_t count, std::int32_t threshold,
             Element scale) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Element scaled = x[i] * scale;
    result[i] = upper_bits(words[i]) >= threshold ? scaled : Element{0};
  }
}

void uniform(float* result, const std::uint32_t* words, std::int64_t count, float low, float extent) {
  for (std::int64_t i = 0; i < count; ++i)
    result[i] = low + static_cast<float>(upper_bits(words[i])) * 0x1p-24F * extent;
}

template <typename Element>
void bernoulli(const Element* p, Element* result, const std::uint32_t* words, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    result[i] = static_cast<Element>(upper_bits(words[i])) * Element{0x1p-24} < p[i] ? Element{1} : Element{0};
  }
}

}  // namespace

const PhiloxLoops kPhiloxLoops = {words,   scattered_words,  dropout<float>,   dropout<double>,
                                  uniform, bernoulli<float>, bernoulli<double>};

}  // namespace tesser::kernels::TESSER_LOOPS
