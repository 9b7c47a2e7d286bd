// Philox4x32-10: a counter-based random number generator (Salmon et al., SC 2011). A block of four words is a function of key and counter alone,
// so any element's number can be computed on its own, by any thread or worker. docs/formats/operators.md says how tesser uses key and counter.
#pragma once

#include <array>
#include <cstdint>

namespace tesser::runtime {

using PhiloxBlock = std::array<std::uint32_t, 4>;

inline PhiloxBlock philox(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product_0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t product_1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(product_1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product_1),
               static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product_0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

// Streams of random numbers that are not an operator's. Operators number theirs from 0.
inline constexpr std::uint32_t kDataOrderStream = 0xFFFFFFFFU;
inline constexpr std::uint32_t kSamplingStream = 0xFFFFFFFEU;

// Block number `block` of stream `id` under `seed`; `step` is the step, or whatever takes its place in the stream.
inline PhiloxBlock philox_block(std::int64_t seed, std::uint32_t step, std::uint32_t id, std::uint64_t block) {
  const auto key = static_cast<std::uint64_t>(seed);
  return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), id, step},
                {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
}

}  // namespace tesser::runtime
