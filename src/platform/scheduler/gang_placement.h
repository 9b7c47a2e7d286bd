// Places for all learners of a job, or none: biased sampling with best fit as the fall-back ("FfDL", Middleware 2019,
// section 3.5, BSA).
//
// A sample places one learner after the other on a node drawn with a probability proportional to the product of its
// biases: whether the learner fits, how full the node is (fuller is likelier when packing, emptier when spreading), and
// whether the gang is there already. Samples that end without places for all are dropped; of the others the best is
// kept. Where no sample is complete although the gang fits, places are chosen by best fit.
//
// One thread. Repeatable for a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "platform/scheduler/cluster.h"

namespace tesser::platform {

enum class PlacementPolicy : std::uint8_t {
  kPack,    // on few nodes, and on those that are fullest: room for large jobs stays
  kSpread,  // on many nodes, and on those that are emptiest: learners share least
};

struct PlacementSettings {
  PlacementPolicy policy = PlacementPolicy::kPack;
  int samples = 4;  // 0: best fit alone
  std::uint64_t seed = 1;
};

struct Gang {
  std::int64_t learners = 1;
  Amounts each{};
};

// Uniform numbers, the same on every machine (splitmix64).
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  double fraction() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // in [0, 1)

 private:
  std::uint64_t state_;
};

// Whether all learners have places now.
bool gang_fits(const Cluster& cluster, const Gang& gang);

// A node for each learner, in the order of the nodes, so that learners on one node are neighbours; nothing when they do
// not all fit. The cluster is as before when this returns.
std::optional<std::vector<int>> place_gang(Cluster& cluster, const Gang& gang, const PlacementSettings& settings,
                                           RandomNumbers& random);

}  // namespace tesser::platform
