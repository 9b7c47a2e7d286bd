// A plan: how each tensor lies over the workers at rest, and how each operator is cut (docs/formats/plan.md).
//
// Workers are numbered by the digits of their groups: level 0, the outermost, splits all workers into `parts` groups,
// level 1 each of those, and so on; level 0 is the most significant digit. Everything about where data is follows from
// a plan and the semantics of the nodes. Values and nodes are those of the expanded program (expand.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "tdl/region.h"
#include "tdl/semantics.h"

namespace tesser::partition {

inline constexpr int kReplicated = -1;

// How a plan is carried out: what lowering does and the prediction of memory foresees.
inline constexpr int kPrefetch = 4;  // operators ahead of its use that an argument is sent
// A fetched region is kept for operators of its phase this many places ahead.
inline constexpr graph::NodeId kKeptPlaces = 64;
// Sums of fewer elements are added by every owner; of larger ones owners add shares, which they then exchange.
inline constexpr std::int64_t kFewestSharedElements = 1024;

// What happens at one level: `axis` (dimension of a tensor, variable of a node) is cut into the level's parts, in
// blocks of `granularity` (tdl::part_of), or every group has all of it.
struct Cut {
  int axis = kReplicated;
  std::int64_t granularity = 1;
  bool operator==(const Cut&) const = default;
};

struct Level {
  int parts = 2;
  std::string link;  // name of the topology's link that separates these groups; empty without a topology
  bool operator==(const Level&) const = default;
};

struct Plan {
  std::string program;       // its name
  std::string program_hash;  // of the captured program (program_hash(), format.h)
  std::string preset;
  std::vector<Level> levels;              // outermost first; none for one worker
  std::vector<std::vector<Cut>> layouts;  // by value, by level: at rest
  std::vector<std::vector<Cut>> nodes;    // by node, by level
  std::int64_t workers() const;           // product of the levels' parts
};

// Digits of a worker, outermost level first.
std::vector<int> worker_digits(std::span<const Level> levels, std::int64_t worker);

// The interval or rectangle that is left for a worker with these digits.
tdl::Region owned_region(const Plan& plan, const graph::Program& program, graph::ValueId value,
                         const std::vector<int>& digits);
tdl::Box worker_box(const Plan& plan, graph::NodeId node, const tdl::NodeSemantics& semantics,
                    const std::vector<int>& digits);

}  // namespace tesser::partition
