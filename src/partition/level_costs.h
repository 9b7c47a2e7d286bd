// Costs of the choices at one level, given the cuts of the levels before. Internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "graph/program.h"
#include "partition/coarsen.h"
#include "partition/placement.h"
#include "partition/plan.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// The cuts that groups and classes have at the levels that are decided, outermost first.
struct Decided {
  std::vector<Level> levels;
  std::vector<std::vector<Cut>> groups;
  std::vector<std::vector<Cut>> classes;
};

// What may be chosen at the next level.
struct Candidates {
  std::vector<std::vector<Cut>> groups;
  std::vector<std::vector<Cut>> classes;
};

// Bytes that all workers of the levels up to this one receive for one node of a class, by option of the class and of
// the operand's or result's group. Zero everywhere for a result that nobody reads.
using PairCosts = std::vector<std::vector<double>>;
struct ClassCosts {
  std::vector<PairCosts> operands;
  std::vector<PairCosts> results;
  std::vector<double> work;  // by option: the largest part's share of the node's work
};

// Remembers what it has computed: classes that differ only in which groups they use share their costs, also from one
// search to the next.
class LevelCosts {
 public:
  LevelCosts(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
             const Coarsening& coarsening)
      : program_(program), semantics_(semantics), coarsening_(coarsening) {}

  std::shared_ptr<const ClassCosts> of(std::size_t node_class, const Level& level, const Decided& decided,
                                       const Candidates& candidates);
  std::size_t computed() const { return known_.size(); }

 private:
  using Key = std::vector<std::int64_t>;
  const std::vector<tdl::Region>& owned(const Shape& shape, std::span<const Cut> cuts, std::span<const Level> levels);
  ClassCosts compute(std::size_t node_class, std::span<const Level> levels, const Decided& decided,
                     const Candidates& candidates);

  const graph::Program& program_;
  const std::vector<tdl::NodeSemantics>& semantics_;
  const Coarsening& coarsening_;
  std::map<Key, std::shared_ptr<const ClassCosts>> known_;
  std::map<Key, std::vector<tdl::Region>> owned_;
};

}  // namespace tesser::partition
