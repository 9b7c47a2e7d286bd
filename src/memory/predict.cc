#include "memory/predict.h"

#include <algorithm>

#include "memory/offset_list.h"

namespace tesser::memory {

std::vector<Block> arena_blocks(const Liveness& liveness) {
  std::vector<Block> blocks;
  for (const Storage& storage : liveness.storages) {
    if (!storage.is_input) {
      blocks.push_back(
          {align_up(storage.bytes, kArenaAlignment), storage.first_node, storage.last_node, kArenaAlignment});
    }
  }
  return blocks;
}

MemoryPrediction predict(const graph::Program& program) {
  const Liveness liveness = analyze_liveness(program);
  MemoryPrediction prediction;
  std::vector<std::int64_t> change(program.nodes.size() + 1);  // of live bytes, by node
  for (const Storage& storage : liveness.storages) {
    const std::int64_t bytes = align_up(storage.bytes, kArenaAlignment);
    if (storage.is_input) {
      prediction.state_bytes += bytes;
    } else {
      change[static_cast<std::size_t>(storage.first_node)] += bytes;
      change[static_cast<std::size_t>(storage.last_node) + 1] -= bytes;
    }
  }
  std::int64_t live = 0;
  for (std::size_t node = 0; node < program.nodes.size(); ++node) {
    live += change[node];
    if (live > prediction.live_bytes || node == 0) {
      prediction.live_bytes = live;
      prediction.peak_node = static_cast<graph::NodeId>(node);
    }
  }
  for (const Storage& storage : liveness.storages) {
    if (!storage.is_input && storage.first_node <= prediction.peak_node && prediction.peak_node <= storage.last_node) {
      prediction.live_at_peak.push_back({storage.owner, storage.bytes});
    }
  }
  std::stable_sort(prediction.live_at_peak.begin(), prediction.live_at_peak.end(),
                   [](const LiveValue& a, const LiveValue& b) { return a.bytes > b.bytes; });
  prediction.arena_bytes = place(arena_blocks(liveness)).total;
  prediction.peak_bytes = prediction.state_bytes + prediction.arena_bytes;
  return prediction;
}

}  // namespace tesser::memory
