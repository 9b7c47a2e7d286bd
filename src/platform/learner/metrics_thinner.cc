#include "platform/learner/metrics_thinner.h"

#include <algorithm>
#include <cmath>

namespace tesser::platform {

void MetricsThinner::add(Metric metric) {
  const std::pair<int, std::string> key(metric.learner, std::move(metric.name));
  auto found = curves_.find(key);
  if (found == curves_.end()) {
    if (curves_.size() == kMostCurves) {
      return;
    }
    found = curves_.emplace(key, Curve()).first;
  }
  Curve& curve = found->second;
  const Kept kept{next_++, metric.step, metric.time, metric.value};
  const bool is_finite = std::isfinite(metric.value);
  const Bucket bucket{1,
                      kept,
                      kept,
                      is_finite ? std::optional(kept) : std::nullopt,
                      is_finite ? std::optional(kept) : std::nullopt,
                      is_finite ? std::nullopt : std::optional(kept)};
  if (!curve.buckets.empty() && curve.buckets.back().count < curve.width) {
    join(curve.buckets.back(), bucket);
    return;
  }
  curve.buckets.push_back(bucket);
  thin(curve);
}

void MetricsThinner::thin(Curve& curve) const {
  const std::size_t most = std::min(most_, kMostBuckets / curves_.size());
  while (curve.buckets.size() > most) {
    std::vector<Bucket> pairs;
    pairs.reserve(curve.buckets.size() / 2 + 1);
    for (std::size_t i = 0; i < curve.buckets.size(); i += 2) {
      pairs.push_back(curve.buckets[i]);
      if (i + 1 < curve.buckets.size()) {
        join(pairs.back(), curve.buckets[i + 1]);
      }
    }
    curve.buckets = std::move(pairs);
    curve.width *= 2;
  }
}

void MetricsThinner::join(Bucket& bucket, const Bucket& later) {
  bucket.count += later.count;
  bucket.last = later.last;
  if (later.low && (!bucket.low || later.low->value < bucket.low->value)) {
    bucket.low = later.low;
  }
  if (later.high && (!bucket.high || later.high->value > bucket.high->value)) {
    bucket.high = later.high;
  }
  if (!bucket.broken) {
    bucket.broken = later.broken;
  }
}

std::vector<Metric> MetricsThinner::metrics() const {
  std::vector<Metric> metrics;
  for (const auto& [key, curve_as_it_came] : curves_) {
    Curve curve = curve_as_it_came;
    thin(curve);  // there are more curves now than when it grew
    for (const Bucket& bucket : curve.buckets) {
      std::vector<Kept> kept{bucket.first, bucket.last};
      for (const auto& extreme : {bucket.low, bucket.high, bucket.broken}) {
        if (extreme) {
          kept.push_back(*extreme);
        }
      }
      std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.number < b.number; });
      kept.erase(
          std::unique(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.number == b.number; }),
          kept.end());
      for (const Kept& each : kept) {
        metrics.push_back({key.first, each.step, each.time, key.second, each.value});
      }
    }
  }
  return metrics;
}

}  // namespace tesser::platform
