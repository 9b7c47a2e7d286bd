// The places that are kept for a job that waits: from when, and on which nodes.
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "platform/scheduler/cluster.h"
#include "platform/scheduler/gang_placement.h"

namespace tesser::platform {

// What a running job gives back, and when at the latest.
struct Release {
  double time = 0;  // infinite: nobody knows
  const std::vector<int>* nodes = nullptr;
  const Amounts* each = nullptr;
};

class Reservation {
 public:
  // The earliest time at which the gang fits when running jobs end as late as they may. `next` gives what they release
  // one after the other, by time, and nothing at the end.
  // Nothing when it does not fit even into the open nodes without any job.
  static std::optional<Reservation> make(const Cluster& cluster, const Gang& gang, double now,
                                         const std::function<std::optional<Release>()>& next);

  double time() const { return time_; }
  // Whether a job that ends at this time must leave what is reserved.
  bool concerns(double end) const;

  // While it stands, nobody sees in the cluster what is reserved.
  class Shade {
   public:
    Shade(const Reservation& reservation, Cluster& cluster);
    Shade(const Shade&) = delete;
    Shade& operator=(const Shade&) = delete;
    ~Shade();

   private:
    Cluster& cluster_;
    std::vector<std::pair<int, Amounts>> hidden_;
  };

  // A job that the reservation concerns has taken a place, or one that would have run on beyond its time gives it back.
  void taken(int node, const Amounts& each);
  void given(int node, const Amounts& each);

 private:
  double time_ = 0;
  std::unordered_map<int, std::size_t> index_;  // of nodes in spare_
  // What a node has at the time beyond what is reserved there.
  std::vector<std::pair<int, Amounts>> spare_;
};

}  // namespace tesser::platform
