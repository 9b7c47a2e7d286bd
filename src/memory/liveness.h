// When each value's memory must exist.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"

namespace tesser::memory {

// One piece of memory, which several values may share: a value, its views, and what an update writes over it.
struct Storage {
  graph::ValueId owner = graph::kNone;  // the value it was made for
  std::int64_t bytes = 0;
  graph::NodeId first_node = 0;  // nodes during which it must exist, both included
  graph::NodeId last_node = 0;
  bool is_input = false;  // an input's memory, which exists for the whole run
};

struct Liveness {
  std::vector<Storage> storages;         // inputs first, then in the order of definition
  std::vector<std::int32_t> storage_of;  // by ValueId; kNone for a value that neither an input nor a node defines
};

// Follows the program's node order. A result's memory exists from its node to the last node that reads it or a view of
// it, or to the last node of all when it is an output (losses, metrics and results are read, and new state that no
// update wrote in place is copied, after the step). Results of tesser::sgd and tesser::adam lie in the memory of the
// state they replace. The program may be one that passes have changed: values that no node defines any more are left
// out.
Liveness analyze_liveness(const graph::Program& program);

}  // namespace tesser::memory
