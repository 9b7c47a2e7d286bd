// Who has which part of a value, from whom a worker takes what it needs, and who adds up what. Lowering moves what
// this says, and traffic.h counts it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "partition/plan.h"
#include "tdl/region.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// A rectangle that one worker gives.
struct Piece {
  int worker = 0;
  tdl::Region region;
};

// How near workers are: the number of outer levels at which they are in one group.
class Distances {
 public:
  explicit Distances(const std::vector<Level>& levels);
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

// Number of the part of a reduction that a worker with these digits makes of a result: its digits at the levels where
// the node, cut by `cuts`, is cut along a variable that is reduced.
std::int64_t part_number(const tdl::NodeSemantics& semantics, std::size_t result, std::span<const Cut> cuts,
                         std::span<const Level> levels, std::span<const int> digits);

// By worker: which rectangle it adds up of a value that lies at `regions` (by worker) because of `cuts`, when `parts`
// results are added. Its own; or a share of it, which is then sent to the other owners of the same rectangle. Shares
// move less when more than two parts are added, but take a second round, so small rectangles have none.
std::vector<tdl::Region> shares_of(const std::vector<tdl::Region>& regions, std::span<const Cut> cuts,
                                   std::span<const Level> levels, std::int64_t parts);

// Whether it is a share: of a rectangle of so many elements that so many workers own.
bool adds_shares(std::int64_t parts, std::int64_t owners, std::int64_t elements);

}  // namespace tesser::partition
