// How many replicas of how many workers: gradient-exchange replicas times partitions (docs/runtime.md, replicas).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "partition/format.h"
#include "partition/plan.h"
#include "partition/search.h"
#include "partition/topology.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// `replicas` copies of the step, each cut over `workers`. A step of all of them takes a batch for each.
struct ReplicaChoice {
  int replicas = 1;
  int workers = 1;
  Plan plan;             // of one replica
  Topology topology;     // of its workers
  Prediction predicted;  // of the plan, without other replicas
  double seconds = 0;    // a step in which the replicas exchange gradients
  std::string refused;   // why it cannot be; empty: it can

  double batches_per_second() const { return refused.empty() ? replicas / seconds : 0; }
};

// The machines of one of so many replicas, which are divided at the outermost links; kInvalidInput where those do not
// divide so.
Result<Topology> topology_of_replica(const Topology& topology, int replicas);

// Seconds of a step of so many replicas under a plan for one of them. What a hub does, it does on the workers' own
// processors: it reads every replica's gradients and updates weights and state once, in place of the workers' updates.
// Over `outer`, the link between replicas (null: all are on one machine), gradients go to the hub's machine and weights
// come back while the step computes; the slower of both counts.
double step_seconds_of_replicas(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                                const Plan& plan, const Topology& topology, double plan_seconds, int replicas,
                                const Link* outer);

// Every division of `options.workers` into replicas, fewest replicas first, with the plan that search() finds for each.
// `options` are for all workers together; the memory bound is a worker's. Refused choices say why. The error of the
// single replica where none can be.
Result<std::vector<ReplicaChoice>> replica_choices(const graph::Program& program,
                                                   const std::vector<tdl::NodeSemantics>& semantics,
                                                   const SearchOptions& options);

// The one with most batches a second; among equals that with fewest replicas.
const ReplicaChoice& fastest(const std::vector<ReplicaChoice>& choices);

// A table for people, the fastest marked.
std::string print(const std::vector<ReplicaChoice>& choices);

}  // namespace tesser::partition
