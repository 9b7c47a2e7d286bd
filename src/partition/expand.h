// Rewrites operators that cannot be cut exactly as they are into ones that can: means into sums and divisions,
// normalisation over the batch into partial sums and their use, averaged losses, norms, splits into slices, and a
// convolution's gradients into one node each.
//
// Plans speak of the expanded program. Expansion is deterministic, keeps every value that the program's outputs and
// other nodes name (dtype, shape, name), gives new nodes and values the name of the node they come from with a suffix
// ("native_batch_norm_3/sums"), and keeps phase, module, source, recurrence, forward and micro-batch. The numbers are
// those of the program within float32 rounding of the rewritten operators.
#pragma once

#include "base/result.h"
#include "graph/program.h"

namespace tesser::partition {

// The program must be verified; the result is, too.
Result<graph::Program> expand(const graph::Program& program);

}  // namespace tesser::partition
