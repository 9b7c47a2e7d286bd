// Where every worker's part lies, and what that costs: shared by the search and by the exact account of a plan
// and by lowering.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/program.h"
#include "partition/plan.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// By value: whether a node reads it or it is an output.
std::vector<bool> values_in_use(const graph::Program& program);

std::int64_t worker_count(std::span<const Level> levels);

// By worker of these levels: what cutting `whole` leaves it. `cuts` by level; axes are positions in `whole`.
std::vector<tdl::Region> parts_by_worker(const tdl::Region& whole, std::span<const Cut> cuts,
                                         std::span<const Level> levels);

// 1, or the number of workers that own the same part because levels replicate it.
std::int64_t owners_of_a_part(std::span<const Cut> cuts, std::span<const Level> levels);

// What the workers' parts of a node read and make.
struct NodeParts {
  std::vector<std::vector<tdl::Region>> operands;  // by operand, by worker; clipped; empty where zeros are given
  std::vector<bool> counted;                      // by operand: false when an earlier one is the same value and regions
  std::vector<std::vector<tdl::Region>> results;  // by result, by worker; empty for results that do not exist
  std::vector<std::int64_t> partial_results;      // by result: how many parts are reduced into each element
};
NodeParts node_parts(const graph::Program& program, const graph::Node& node, const tdl::NodeSemantics& semantics,
                     std::span<const Cut> cuts, std::span<const Level> levels);

// Elements that a worker receives, by traffic.h's rules.
double operand_elements(const tdl::Region& needed, const tdl::Region& owned);
// `share`: what the worker adds up of what it owns (shares_of, holders.h).
double result_elements(const tdl::Region& made, std::int64_t partial_results, const tdl::Region& owned,
                       const tdl::Region& share);

}  // namespace tesser::partition
