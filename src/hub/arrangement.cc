#include "hub/arrangement.h"

#include <algorithm>
#include <utility>

namespace tesser::hub {

std::vector<Arrangement> arrangements(double model_bytes, const Cluster& cluster) {
  const auto workers = static_cast<double>(cluster.workers);
  std::vector<Arrangement> all;
  const auto add = [&](std::string name, const char* machine, double bytes, double bandwidth) {
    all.push_back({std::move(name), machine, bytes, bytes / 2 / bandwidth});
  };
  // A machine is worker and server of its share: it sends and receives what every other does.
  add("colocated, sharded", "worker", 4 * model_bytes * (workers - 1) / workers, cluster.worker_bandwidth);
  add("colocated, central", "worker", 2 * model_bytes * (workers - 1), cluster.worker_bandwidth);
  if (cluster.hubs > 0) {
    const auto hubs = static_cast<double>(cluster.hubs);
    const double of_hub = 2 * model_bytes * workers / hubs;
    const double of_worker = 2 * model_bytes;
    const bool hub_is_busiest = of_hub / cluster.hub_bandwidth > of_worker / cluster.worker_bandwidth;
    add(cluster.hubs == 1 ? "dedicated" : "dedicated, sharded", hub_is_busiest ? "hub" : "worker",
        hub_is_busiest ? of_hub : of_worker, hub_is_busiest ? cluster.hub_bandwidth : cluster.worker_bandwidth);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Arrangement& left, const Arrangement& right) { return left.seconds < right.seconds; });
  return all;
}

}  // namespace tesser::hub
