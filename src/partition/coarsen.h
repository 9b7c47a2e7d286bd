// Makes the graph smaller before the search: values that are laid out alike become one group, nodes that are cut alike
// one class (Tofu, EuroSys 2019, section 5.1).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "partition/plan.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// Nodes of one signature on values of the same groups.
struct NodeClass {
  graph::NodeId representative = 0;  // the first of them
  int signature = 0;
  std::int64_t nodes = 0;           // how many
  std::vector<int> operand_groups;  // by operand
  std::vector<int> result_groups;   // by result; kReplicated (-1) where there is none or nobody reads it
};

struct Coarsening {
  std::vector<int> group_of_value;                  // -1 for values that nothing defines
  std::vector<std::vector<graph::ValueId>> groups;  // members, all of the same shape
  std::vector<int> class_of_node;
  std::vector<NodeClass> classes;  // in the order of their representatives
};

// Joined are: arguments and results of elementwise operators; state and its new content; a value and its gradient
// where the backward node says which it is; the values of unrolled timesteps; results of equal shape of one node.
// `signatures` by node (signature.h), `semantics` by node.
Coarsening coarsen(const graph::Program& program, const std::vector<int>& signatures,
                   const std::vector<tdl::NodeSemantics>& semantics);

}  // namespace tesser::partition
