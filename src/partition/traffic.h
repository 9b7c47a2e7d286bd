// What a plan moves, to the byte as lowering does it (Tofu, EuroSys 2019, section 5).
//
// Bytes are those that a worker receives. An operand costs the part of the region it needs that it does not own; a
// region that an operator of the same phase fetched at most kKeptPlaces before is there already. A result costs each
// owner the part it owns and did not make; where parts are summed every owner needs all partial results of its
// rectangle but its own, or of its share, and then the other owners' shares (shares_of, holders.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "partition/plan.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// Bytes received by all workers together in one step.
struct NodeTraffic {
  std::vector<std::int64_t> operands;  // by operand (graph::values_read)
  std::vector<std::int64_t> results;   // by result
  std::int64_t total() const;
};

// Of a node by itself: what it reads was not fetched before. The least that a search can add up node by node.
NodeTraffic node_traffic(const graph::Program& program, graph::NodeId node, const tdl::NodeSemantics& semantics,
                         const Plan& plan);

// What workers receive at one time; of the worker that receives most.
struct Round {
  graph::NodeId node = graph::kNone;      // whose operand or result it is
  graph::NodeId sent = graph::kNone;      // of an operand: at the beginning of which node it is sent; kNone for results
  std::vector<std::int64_t> level_bytes;  // by level
  std::int64_t parts = 0;                 // that are then added, its own included; 0 or 1: none
};

struct Traffic {
  std::vector<NodeTraffic> nodes;          // by node
  std::vector<Round> rounds;               // by node; operands before results, in order
  std::vector<std::int64_t> level_bytes;   // by level: what crosses between that level's groups, and no outer ones'
  std::vector<std::int64_t> worker_bytes;  // by worker: what it receives
  std::int64_t total = 0;
};

// `semantics` by node of the (expanded) program.
Traffic plan_traffic(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, const Plan& plan);

}  // namespace tesser::partition
