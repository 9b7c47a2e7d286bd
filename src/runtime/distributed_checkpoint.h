// Which worker writes which part of a checkpoint, and what has been written so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "runtime/checkpoint_manifest.h"
#include "runtime/control_messages.h"

namespace tesser::runtime {

// The shards of every checkpoint of a run: each rectangle of each value once, written by the one of its holders that
// has least to write so far.
struct SharedState {
  Manifest manifest;                           // but for `info` and the shards' sizes and checksums
  std::vector<std::vector<ShardTask>> shards;  // by worker
};

// `programs` are all workers' of one lowered program. kFailed when they do not have all of a value.
Result<SharedState> share_state(const std::vector<StateValue>& values, const std::vector<graph::Program>& programs,
                                std::int64_t largest_shard_bytes);

// Collects what workers report; one thread at a time.
class ShardCollection {
 public:
  ShardCollection(Manifest manifest, int workers) : manifest_(std::move(manifest)), workers_(workers) {}

  // Once the last worker's shards of a step have come: the manifest with all of them, but for `info`. What a worker
  // reports a second time is passed over.
  std::optional<Manifest> add(int worker, const WrittenShards& written);

 private:
  struct Unfinished {
    Manifest manifest;
    std::set<int> workers;
  };
  const Manifest manifest_;
  const int workers_;
  std::map<std::int64_t, Unfinished> unfinished_;  // by step
  std::optional<std::int64_t> newest_;             // step that was complete last
};

}  // namespace tesser::runtime
