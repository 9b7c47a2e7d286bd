// What workers and hubs of one job tell each other beside the tensors: the numbers of notifications, the memory that
// each shows the other, the names of queues (docs/hub.md, wire). Internal to this folder.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "hub/chunk_map.h"
#include "hub/job_settings.h"

namespace tesser::hub {

// A worker's notification: a chunk's gradient is there; there is none in this step; the step is committed (kCommit with
// 0 in the chunk's place), or all that it gave of tensor k in this step is withdrawn (kCommit with k + 1). A hub's: the
// chunk's weights are there (kGradient); tensor k is withdrawn, and its gradient is read no more (kNone with k). Either
// way kTensor stands for all chunks that the core has of a tensor, whose number takes the chunk's place: where memory
// is mapped nothing is sent that would need a notification of its own. Between hubs of racks: the rack's sum is there,
// or there is none; the weights are there.
enum class Notice : std::uint32_t { kGradient = 0, kNone = 1, kCommit = 2, kTensor = 3, kWeights = 3 };

inline constexpr std::uint32_t kNoticeBits = 2;
inline constexpr std::int64_t kMostChunks = (std::int64_t{1} << 20) - 1;  // and so of tensors, with one to spare

inline std::uint32_t notice(Notice kind, std::uint32_t chunk) {
  return chunk << kNoticeBits | static_cast<std::uint32_t>(kind);
}
inline Notice notice_kind(std::uint32_t number) { return static_cast<Notice>(number & ((1U << kNoticeBits) - 1)); }
inline std::uint32_t notice_chunk(std::uint32_t number) { return number >> kNoticeBits; }

// Hyperparameters of all groups of a step. A worker writes those of step s to slot s % 2: it commits step s + 2 only
// once all weights of step s + 1 have arrived, for which the hub has used those of step s.
inline constexpr int kStepSlots = 2;

// A list of rows: how many a chunk's gradient has, then their numbers in the chunk, ascending. The rows themselves lie
// at the begin of the chunk's gradient, one after the other.
using RowNumber = std::uint32_t;

// A core reads the gradients of all ranks, weights and state at the same place of each at once. Where these lie a
// multiple of a large power of two apart they compete for the same banks of memory and the same sets of a cache, at up
// to half the speed (docs/benchmarks.md), so each begins one line and one page further than it otherwise would.
inline constexpr std::uint64_t kStagger = 4096 + 64;

// A worker's memory: weights, then gradients, lists of rows, slots for hyperparameters. Bytes from the region's begin.
struct WorkerMemory {
  std::uint64_t gradients_begin = 0;
  std::uint64_t rows = 0;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t bytes = 0;

  WorkerMemory(const ChunkMap& map, const JobSettings& settings);

  std::uint64_t gradients(std::int64_t rank) const {
    return gradients_begin + static_cast<std::uint64_t>(rank) * kStagger;
  }
  std::uint64_t slot(std::int64_t step) const {
    return slots + static_cast<std::uint64_t>(step % kStepSlots) * slot_bytes;
  }
};

// What a hub keeps for a worker that it reaches over the network: gradients, lists of rows, then slots for each core.
struct Inbox {
  std::uint64_t rows = 0;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t bytes = 0;

  Inbox(const ChunkMap& map, const JobSettings& settings, int cores);

  static std::uint64_t gradients(std::int64_t rank) {
    return (kMostStateTensors + 1 + static_cast<std::uint64_t>(rank)) * kStagger;
  }
  std::uint64_t slot(int core, std::int64_t step) const {
    return slots + static_cast<std::uint64_t>(core * kStepSlots + step % kStepSlots) * slot_bytes;
  }
};

// A hub's memory of a job: weights, then the tensors of optimizer state one after the other, each in the layout of the
// weights, then how many updates each chunk has had (std::int64_t). Bytes from the region's begin.
struct JobMemory {
  std::uint64_t tensor_bytes = 0;
  int state_tensors = 0;  // the most that a group has
  std::uint64_t bytes = 0;

  JobMemory(const ChunkMap& map, const JobSettings& settings);

  std::uint64_t state(int tensor) const { return static_cast<std::uint64_t>(tensor + 1) * (tensor_bytes + kStagger); }
  std::uint64_t updates() const { return state(state_tensors); }
  std::uint64_t updates(std::uint32_t chunk) const { return updates() + chunk * sizeof(std::int64_t); }
};

// Of a device with `queues` queues for each core's chunks: those of a hub, one a worker, or those of a worker.
std::uint64_t signal_bytes(const std::vector<ChunkMap::Load>& cores, std::size_t queues);
// Each chunk twice, the second one withdrawn, and commits, of which two may be unread.
std::uint32_t push_capacity(const ChunkMap::Load& core);
std::uint32_t pull_capacity(const ChunkMap::Load& core);

std::string worker_name(std::int64_t rank);  // of its device: "rank 3"
std::string push_queue(int core);            // of notifications from a worker to a core
std::string pull_queue(int core);            // from a core to a worker
// Of their devices; not 0. Who does not know the nonce is refused by them.
std::uint64_t run_of(const std::string& job, const std::string& nonce);

}  // namespace tesser::hub
