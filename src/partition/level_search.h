// The best cuts of all groups and classes at one level. Internal to this folder.
#pragma once

#include <functional>
#include <vector>

#include "partition/alignment.h"
#include "partition/level_costs.h"

namespace tesser::partition {

// What a preset allows.
struct Rules {
  bool replicate_tensors = false;  // also tensors that could be cut
  bool replicate_work = false;     // also nodes that could be cut
  bool reductions = true;          // cuts whose parts' results are summed
  bool even_cuts_first = false;    // a dimension that does not divide is cut only where none divides
  // Whether a group may be cut along a dimension, and whether it may be replicated though it can be cut.
  std::function<bool(int group, int dimension)> may_cut = [](int, int) { return true; };
  std::function<bool(int group)> may_replicate = [](int) { return true; };  // asked if replicate_tensors
};

// Candidates by those rules, for the sizes that the first worker (the one with the largest parts) has left. A group or
// class without any cut is replicated.
Candidates candidates_at(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                         const Coarsening& coarsening, const Alignment& alignment, const Decided& decided, int parts,
                         const Rules& rules);

// What a choice costs, in whatever unit the search minimises.
struct Prices {
  double byte = 1;                           // received by any worker
  double transfer = 0;                       // added for an operand or result of which anything is received
  std::vector<double> work;                  // by class: of doing one node's work whole; empty: none
  std::vector<std::vector<double>> keeping;  // by group, by candidate: of keeping its members so; empty: none
};

struct LevelChoice {
  std::vector<int> groups;   // by group: which candidate
  std::vector<int> classes;  // by class
  double cost = 0;
  std::size_t widest_table = 0;
  bool exact = true;
};

// The least cost over all combinations, exactly.
LevelChoice choose_best(const Coarsening& coarsening, LevelCosts& costs, const Level& level, const Decided& decided,
                        const Candidates& candidates, const Prices& prices);

// Spartan's greedy order: the largest group first, each to what is cheapest beside those before it.
LevelChoice choose_largest_first(const Coarsening& coarsening, LevelCosts& costs, const Level& level,
                                 const Decided& decided, const Candidates& candidates, const Prices& prices,
                                 const std::vector<double>& group_bytes);

}  // namespace tesser::partition
