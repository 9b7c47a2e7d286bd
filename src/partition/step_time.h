// How long a step takes under a plan.
#pragma once

#include <vector>

#include "graph/program.h"
#include "partition/plan.h"
#include "partition/topology.h"
#include "partition/traffic.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// Seconds of one step of the worker that has most to do.
struct StepTime {
  double computing = 0;
  // Waiting for what others send: transfers and parts of them that no computing hides, and the processor's time for
  // them that no waiting hides.
  double receiving = 0;
  double total() const { return computing + receiving; }
};

// Follows that worker through its lowered program as the executor runs it, taking all workers to be where it is: its
// operators one after the other; an operand travels from the place from which it is sent on, beside what is computed
// until it is used; a result is waited for where it is made. Every link carries one thing after the other.
StepTime step_time(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, const Plan& plan,
                   const Topology& topology, const Traffic& traffic);

// What a part of a node's box is of its work. The first worker has the largest of uneven parts.
double work_share(const tdl::Box& whole, const tdl::Box& part);

// Of one worker that computes all of a node.
double node_seconds(const graph::Program& program, const graph::Node& node, const Topology& topology);

}  // namespace tesser::partition
