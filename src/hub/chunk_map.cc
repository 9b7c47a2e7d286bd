#include "hub/chunk_map.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

#include <fmt/format.h>

#include "hub/wire.h"

namespace tesser::hub {
namespace {

constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes of float32

std::int64_t aligned(std::int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

// The owner with the least elements comes first; of equals the first.
struct Owner {
  std::int64_t elements = 0;
  std::uint32_t core = 0;
  std::uint32_t hub = 0;

  bool operator>(const Owner& other) const {
    return std::tie(elements, core, hub) > std::tie(other.elements, other.core, other.hub);
  }
};

// The largest first, each to the owner with the least so far. Of a tensor's chunks each owner takes those that it gets
// in one piece: the processor reads ahead, and what it has read behind the end of a chunk is then that of its next one.
void assign_owners(ChunkMap& map, const std::vector<int>& cores) {
  std::priority_queue<Owner, std::vector<Owner>, std::greater<>> owners;
  for (std::uint32_t hub = 0; hub < cores.size(); ++hub) {
    map.loads.emplace_back(static_cast<std::size_t>(cores[hub]));
    for (std::uint32_t core = 0; core < map.loads.back().size(); ++core) {
      owners.push({0, core, hub});
    }
  }
  std::vector<std::uint32_t> order(map.chunks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    return map.chunks[left].elements > map.chunks[right].elements;
  });
  for (auto first = order.begin(); first != order.end();) {
    // Chunks of one size that follow one another in a tensor.
    auto end = first;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> counts;  // by hub and core
    while (end != order.end() && map.chunks[*end].key == map.chunks[*first].key &&
           map.chunks[*end].elements == map.chunks[*first].elements) {
      Owner owner = owners.top();
      owners.pop();
      owner.elements += map.chunks[*end].elements;
      owners.push(owner);
      ++counts[{owner.hub, owner.core}];
      ++end;
    }
    for (const auto& [owner, count] : counts) {
      ChunkMap::Load& load = map.loads[owner.first][owner.second];
      load.chunks += count;
      load.elements += count * map.chunks[*first].elements;
      for (std::int64_t given = 0; given < count; ++given, ++first) {
        std::tie(map.chunks[*first].hub, map.chunks[*first].core) = owner;
      }
    }
  }
}

void find_shares(ChunkMap& map) {
  map.shares.resize(map.key_begin.size());
  for (const Chunk& chunk : map.chunks) {
    auto& shares = map.shares[chunk.key];
    auto share = std::find_if(shares.begin(), shares.end(), [&](const ChunkMap::Share& each) {
      return each.hub == chunk.hub && each.core == chunk.core;
    });
    if (share == shares.end()) {
      share = shares.insert(share, {chunk.hub, chunk.core, 0});
    }
    ++share->chunks;
  }
}

}  // namespace

std::int64_t ChunkMap::chunks_of(std::uint32_t key, std::uint32_t hub, std::uint32_t core) const {
  for (const Share& share : shares[key]) {
    if (share.hub == hub && share.core == core) {
      return share.chunks;
    }
  }
  return 0;
}

Result<ChunkMap> map_chunks(const JobSettings& settings, const std::vector<int>& cores) {
  ChunkMap map;
  for (std::uint32_t key = 0; key < settings.keys.size(); ++key) {
    map.key_begin.push_back(map.elements);
    map.first_chunk.push_back(static_cast<std::uint32_t>(map.chunks.size()));
    const std::int64_t elements = settings.keys[key].elements;
    const std::int64_t row = settings.keys[key].row_elements;
    std::int64_t longest = settings.chunk_bytes / static_cast<std::int64_t>(sizeof(float));
    if (row != 0) {
      longest = std::max(row, longest / row * row);  // whole rows
    }
    if (elements / longest >= kMostChunks - static_cast<std::int64_t>(map.chunks.size())) {
      return invalid_input(fmt::format("the model has more than {} chunks of {} bytes; ask for larger chunks",
                                       kMostChunks, settings.chunk_bytes));
    }
    for (std::int64_t begin = 0; begin < elements; begin += longest) {
      const std::int64_t size = std::min(longest, elements - begin);
      map.chunks.push_back({key, map.elements + begin, size, row == 0 ? 0 : map.row_entries, 0, 0});
      map.row_entries += row == 0 ? 0 : aligned(1 + size / row);
    }
    map.elements += aligned(elements);
  }
  map.first_chunk.push_back(static_cast<std::uint32_t>(map.chunks.size()));
  assign_owners(map, cores);
  find_shares(map);
  return map;
}

std::string print(const ChunkMap& map) {
  std::string text = fmt::format("{:>4} {:>5} {:>8} {:>12}\n", "hub", "core", "chunks", "bytes");
  for (std::size_t hub = 0; hub < map.loads.size(); ++hub) {
    for (std::size_t core = 0; core < map.loads[hub].size(); ++core) {
      const ChunkMap::Load& load = map.loads[hub][core];
      text += fmt::format("{:>4} {:>5} {:>8} {:>12}\n", hub, core, load.chunks,
                          load.elements * static_cast<std::int64_t>(sizeof(float)));
    }
  }
  return text;
}

}  // namespace tesser::hub
