// Nodes that are the same but for which values they are applied to.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "tdl/catalogue.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// By node: a number shared by all nodes of the same operator, attributes, and argument and result types; numbers count
// up in the order of first use.
std::vector<int> node_signatures(const graph::Program& program);

// tdl::analyze of every node; nodes of one signature share the work.
std::vector<tdl::NodeSemantics> analyze_nodes(const graph::Program& program, const tdl::Catalogue& catalogue);

}  // namespace tesser::partition
