// Height of what is placed at each time. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "memory/layout.h"

namespace tesser::memory {

// A segment tree over the times at which blocks begin or end; every operation is logarithmic.
class Skyline {
 public:
  explicit Skyline(std::span<const Block> blocks);

  std::int64_t highest(std::int32_t block) const;       // during the block's lifetime
  void raise(std::int32_t block, std::int64_t height);  // to `height`, which is not below highest(block)

 private:
  std::int64_t highest(std::size_t tree, std::size_t begin, std::size_t end, std::size_t first, std::size_t last) const;
  void raise(std::size_t tree, std::size_t begin, std::size_t end, std::size_t first, std::size_t last,
             std::int64_t height);

  std::vector<std::pair<std::size_t, std::size_t>> ranges_;  // of compressed times, by block; the end is not included
  std::size_t times_ = 1;
  std::vector<std::int64_t> most_;   // of the subtree
  std::vector<std::int64_t> whole_;  // raised over the subtree's whole range
};

}  // namespace tesser::memory
