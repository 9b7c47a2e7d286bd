// What a worker needs of memory under a plan, foreseen without lowering it. Kernels' scratch memory is not in it, nor
// what a local call makes past its part and is cropped (borders of the gradient of a convolution's input).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "memory/liveness.h"
#include "partition/plan.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// Bytes, every tensor rounded up to the arena's alignment.
struct WorkerMemory {
  std::int64_t worker = 0;                 // the one that needs most
  std::int64_t state_bytes = 0;            // its parts of state, constants and batch
  std::int64_t at_rest_bytes = 0;          // and of the most results that are live at one time
  std::int64_t peak_bytes = 0;             // all it needs at once: what operators fetch and make on their way as well
  graph::NodeId peak_node = graph::kNone;  // where that is; kNone without nodes
};

struct MemoryOptions {
  // Lays the blocks of the arena out, as the runtime will, so that the peak counts the gaps too. Without it the peak is
  // what is live at one time, which is some percent less, and faster to have.
  bool lay_out = true;
  int prefetch = kPrefetch;  // operators ahead of its use that an argument is fetched (lowering)
};

// The prediction for many plans of one program. It refers to program and semantics, which must outlive it; any number
// of threads may use it.
class MemoryPredictor {
 public:
  // `program` is expanded, `semantics` by node.
  MemoryPredictor(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics);

  // The worker that needs most. Only workers whose parts can be the largest are looked at: the first, which has the
  // largest of every uneven cut, and one in the middle, which has the halos of both sides.
  WorkerMemory worst(const Plan& plan, const MemoryOptions& options = {}) const;

  WorkerMemory of_worker(const Plan& plan, std::int64_t worker, const MemoryOptions& options = {}) const;

 private:
  const graph::Program& program_;
  const std::vector<tdl::NodeSemantics>& semantics_;
  std::vector<std::vector<graph::ValueId>> read_;  // by node: graph::values_read
  std::vector<graph::ValueId> shares_;             // by value: the value in whose memory it lies when nothing is cut
  std::vector<graph::NodeId> last_use_;  // by value: of itself, not of what shares its memory nor by updates; or kNone
  // By node: when an update runs that needs nothing of other workers, as the executor moves it; of others, the node.
  std::vector<graph::NodeId> runs_at_;
};

WorkerMemory worker_memory(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                           const Plan& plan, const MemoryOptions& options = {});

}  // namespace tesser::partition
