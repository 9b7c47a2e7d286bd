// Placed blocks in the order of their offsets, with the search for a gap. Internal to this folder.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "memory/layout.h"

namespace tesser::memory {

inline std::int64_t align_up(std::int64_t offset, std::int64_t alignment) {
  return (offset + alignment - 1) & ~(alignment - 1);
}

enum class FitRule : std::uint8_t {
  kFirst,  // the lowest gap that is large enough
  kBest,   // the smallest one
};

// Kept in chunks with the hull of their lifetimes, so that inserting moves little and chunks of another time are
// skipped.
class OffsetList {
 public:
  // Finds the block's place among those that live at the same time, keeps it and returns the offset. Adds the entries
  // looked at to `work`.
  std::int64_t insert(const Block& block, FitRule rule, std::int64_t& work);

 private:
  struct Entry {
    std::int64_t begin;
    std::int64_t end;
    std::int32_t first_node;
    std::int32_t last_node;
  };
  struct Chunk {
    std::vector<Entry> entries;
    std::int32_t first_node = std::numeric_limits<std::int32_t>::max();
    std::int32_t last_node = std::numeric_limits<std::int32_t>::min();
  };

  std::int64_t find_gap(const Block& block, FitRule rule, std::int64_t& work) const;
  void keep(const Entry& entry);

  std::vector<Chunk> chunks_;
};

}  // namespace tesser::memory
