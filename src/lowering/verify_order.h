// Proves that lowered programs end: no worker waits for ever.
#pragma once

#include <vector>

#include "base/result.h"
#include "graph/program.h"

namespace tesser::lowering {

// Runs the events of all workers' programs: a send waits for its open, a receive and a sent for their send. Fails
// (kInvalidInput) naming, for each worker that is stuck, the node at which it waits and for whom; also when a transfer
// is not sent once, opened once and received once, or its two ends disagree in type, size or peer.
Result<void> verify_order(const std::vector<graph::Program>& workers);

}  // namespace tesser::lowering
