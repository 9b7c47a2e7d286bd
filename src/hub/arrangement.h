// Which arrangement of hubs moves a model's gradients and weights fastest over a network, by the formulas of Parameter
// Hub (section 2.2): what the busiest machine must carry in a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tesser::hub {

// Bandwidths are bytes a second in each direction.
struct Cluster {
  std::int64_t workers = 2;
  double worker_bandwidth = 0;
  std::int64_t hubs = 0;     // machines that compute nothing else; 0: none
  double hub_bandwidth = 0;  // of each
};

struct Arrangement {
  std::string name;     // "colocated, sharded"
  std::string machine;  // which is the busiest: "worker", "hub"
  double bytes = 0;     // that it carries in a step, both directions together
  double seconds = 0;   // that takes at the least
};

// All that the cluster allows, the fastest first; of equals the one with fewer machines. At least one worker.
std::vector<Arrangement> arrangements(double model_bytes, const Cluster& cluster);

}  // namespace tesser::hub
