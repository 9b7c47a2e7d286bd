// Places blocks of memory with known lifetimes into one arena.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tesser::memory {

// Memory needed while the nodes first_node to last_node run, both included.
struct Block {
  std::int64_t bytes = 0;
  std::int32_t first_node = 0;
  std::int32_t last_node = 0;
  std::int64_t alignment = 64;  // of the block's offset, a power of two
};

struct Layout {
  std::vector<std::int64_t> offsets;  // by block, in bytes from the arena's begin; 0 for a block of no bytes
  std::int64_t total = 0;             // bytes of the arena
  std::int64_t lower_bound = 0;       // most bytes live at one time: no layout needs less
};

// Finds offsets such that blocks whose lifetimes share a node never overlap, with a total close to the lower bound:
// several greedy orders are tried and the best is kept. The same blocks give the same layout. 50,000 blocks take well
// under a second; with few blocks more orders are tried. Aborts on negative sizes, lifetimes that end before they
// begin, and alignments that are no power of two.
Layout place(std::span<const Block> blocks);

}  // namespace tesser::memory
