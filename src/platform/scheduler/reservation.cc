#include "platform/scheduler/reservation.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tesser::platform {

std::optional<Reservation> Reservation::make(const Cluster& cluster, const Gang& gang, double now,
                                             const std::function<std::optional<Release>()>& next) {
  std::int64_t fits = 0;
  for (const auto& [key, members] : cluster.classes()) {
    fits += learners_that_fit(key.free, gang.each, gang.learners) * static_cast<std::int64_t>(members.size());
  }
  Reservation reservation;
  reservation.time_ = now;
  std::unordered_map<int, Amounts> later;  // what is free then, where that is more than now
  while (fits < gang.learners) {
    const std::optional<Release> release = next();
    if (!release) {
      return std::nullopt;
    }
    for (const int node : *release->nodes) {
      if (node >= 0 && cluster.is_open(node)) {
        Amounts& free = later.try_emplace(node, cluster.free(node)).first->second;
        fits -= learners_that_fit(free, gang.each, gang.learners);
        free += *release->each;
        fits += learners_that_fit(free, gang.each, gang.learners);
      }
    }
    reservation.time_ = std::max(now, release->time);
  }
  // The fewest nodes; of those that hold as many, the ones that are free already, so that what has been kept free
  // stays reserved from round to round.
  struct Candidate {
    std::int64_t fits;
    std::int64_t fits_now;
    int node;
    bool operator<(const Candidate& other) const {
      return std::tuple(-fits, -fits_now, node) < std::tuple(-other.fits, -other.fits_now, other.node);
    }
  };
  std::vector<Candidate> candidates;
  for (const auto& [key, members] : cluster.classes()) {
    const std::int64_t each_fits = learners_that_fit(key.free, gang.each, gang.learners);
    std::int64_t room = 0;
    for (auto node = members.begin(); each_fits > 0 && room < gang.learners && node != members.end(); ++node) {
      if (later.count(*node) == 0) {
        candidates.push_back({each_fits, each_fits, *node});
        room += each_fits;
      }
    }
  }
  for (const auto& [node, free] : later) {
    candidates.push_back({learners_that_fit(free, gang.each, gang.learners),
                          learners_that_fit(cluster.free(node), gang.each, gang.learners), node});
  }
  std::sort(candidates.begin(), candidates.end());
  std::int64_t missing = gang.learners;
  for (const Candidate& candidate : candidates) {
    if (missing == 0) {
      break;
    }
    const std::int64_t here = std::min(missing, candidate.fits);
    const auto changed = later.find(candidate.node);
    Amounts spare = changed == later.end() ? cluster.free(candidate.node) : changed->second;
    spare -= gang.each * here;
    reservation.index_.emplace(candidate.node, reservation.spare_.size());
    reservation.spare_.emplace_back(candidate.node, spare);
    missing -= here;
  }
  return reservation;
}

bool Reservation::concerns(double end) const { return !(std::isfinite(time_) && end <= time_); }

Reservation::Shade::Shade(const Reservation& reservation, Cluster& cluster) : cluster_(cluster) {
  for (const auto& [node, spare] : reservation.spare_) {
    Amounts hidden = cluster.free(node);
    hidden -= spare;
    bool hides = false;
    for (std::int64_t& amount : hidden) {
      amount = std::max<std::int64_t>(amount, 0);
      hides = hides || amount > 0;
    }
    if (hides) {
      cluster.take(node, hidden);
      hidden_.emplace_back(node, hidden);
    }
  }
}

Reservation::Shade::~Shade() {
  for (const auto& [node, hidden] : hidden_) {
    cluster_.give(node, hidden);
  }
}

void Reservation::taken(int node, const Amounts& each) {
  if (const auto found = index_.find(node); found != index_.end()) {
    spare_[found->second].second -= each;
  }
}

void Reservation::given(int node, const Amounts& each) {
  if (const auto found = index_.find(node); found != index_.end()) {
    spare_[found->second].second += each;
  }
}

}  // namespace tesser::platform
