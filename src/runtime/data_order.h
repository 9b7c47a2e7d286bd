// The order in which an epoch visits its samples; docs/formats/data.md defines it, python/tesser/data.py repeats it.
#pragma once

#include <cstdint>
#include <vector>

namespace tesser::runtime {

// A permutation of 0 ... samples - 1 that depends on the arguments alone. Takes time linear in `samples`, which must be
// below 2^32.
std::vector<std::uint32_t> shuffled_order(std::int64_t seed, std::int64_t epoch, std::int64_t samples);

}  // namespace tesser::runtime
