// Placement in the order of time. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/layout.h"

namespace tesser::memory {

enum class TimeDirection : std::uint8_t { kForward, kBackward };

// Places each block when its lifetime begins (or, backward, ends) into the smallest free gap that holds it, as an
// allocator with perfect knowledge of frees would. Returns the offsets by block. O(n log n).
std::vector<std::int64_t> sweep(std::span<const Block> blocks, TimeDirection direction);

}  // namespace tesser::memory
