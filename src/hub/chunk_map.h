// Where every tensor lies, how tensors are cut into chunks, and which core of which hub owns each chunk from end to end
// (Parameter Hub, section 3.2). Workers and hubs compute the same map from the same settings, so none is sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/job_settings.h"

namespace tesser::hub {

struct Chunk {
  std::uint32_t key = 0;
  std::int64_t begin = 0;  // first element, in the layout of all tensors
  std::int64_t elements = 0;
  std::int64_t rows_begin = 0;  // of a tensor given by rows: where its list of rows lies among all such lists
  std::uint32_t hub = 0;
  std::uint32_t core = 0;
};

struct ChunkMap {
  std::int64_t elements = 0;               // of the layout, padding included
  std::int64_t row_entries = 0;            // of all lists of rows: for each chunk a count and as many numbers as rows
  std::vector<std::int64_t> key_begin;     // each tensor begins at a multiple of 64 bytes of float32
  std::vector<std::uint32_t> first_chunk;  // of each key, in order; one more at the end
  std::vector<Chunk> chunks;               // in the order of keys
  // Of each key: the cores that own chunks of it, and how many.
  struct Share {
    std::uint32_t hub = 0;
    std::uint32_t core = 0;
    std::int64_t chunks = 0;
  };
  std::vector<std::vector<Share>> shares;
  // By hub and core: how many chunks and elements it owns.
  struct Load {
    std::int64_t chunks = 0;
    std::int64_t elements = 0;
  };
  std::vector<std::vector<Load>> loads;

  std::uint32_t chunks_of(std::uint32_t key) const { return first_chunk[key + 1] - first_chunk[key]; }
  std::int64_t chunks_of(std::uint32_t key, std::uint32_t hub, std::uint32_t core) const;
};

// Largest chunks first, each to the core with the least so far (within 4/3 of the best balance). `cores`: of each hub,
// at least one hub with at least one core. The settings have passed check(). kInvalidInput when there are more chunks
// than a notification can name.
Result<ChunkMap> map_chunks(const JobSettings& settings, const std::vector<int>& cores);

// A table for people: chunks and bytes of each core.
std::string print(const ChunkMap& map);

}  // namespace tesser::hub
