// Who has which part of a value, and from whom a worker takes what it needs. Internal to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "partition/plan.h"
#include "tdl/region.h"

namespace tesser::lowering {

// A rectangle that one worker gives.
struct Piece {
  int worker = 0;
  tdl::Region region;
};

// How near workers are: the number of outer levels at which they are in one group.
class Distances {
 public:
  explicit Distances(const std::vector<partition::Level>& levels);
  int workers() const { return workers_; }
  // Larger is nearer; a worker is nearest to itself.
  int nearness(int a, int b) const;

 private:
  std::vector<int> group_sizes_;  // workers in one group of each level
  int workers_ = 1;
};

// Covers `needed` by pieces of `held` (by worker; empty regions hold nothing), each element once. Workers whose regions
// are equal hold copies: the nearest gives, among equally near ones the choice is spread over the takers. Aborts when
// `held` does not cover `needed`. `taker` itself gives what it has. Regions held must be equal or disjoint.
std::vector<Piece> cover(const tdl::Region& needed, const std::vector<tdl::Region>& held, int taker,
                         const Distances& distances);

}  // namespace tesser::lowering
