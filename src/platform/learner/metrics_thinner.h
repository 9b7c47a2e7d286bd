// Curves of any length in bounded memory, with their extremes: what a page draws of a run of a million steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/learner/metrics_reader.h"

namespace tesser::platform {

// One thread at a time. Metrics are taken in the order in which they come, so many neighbours of a learner's name a
// bucket; a bucket keeps its first, lowest, highest and last, and the first that is not finite. When a curve has more
// buckets than it may, pairs of neighbours become one.
class MetricsThinner {
 public:
  static constexpr std::size_t kMostCurves = 1'000;    // learners times names; what comes of further ones is left out
  static constexpr std::size_t kMostBuckets = 50'000;  // of all curves together, however many each may have

  explicit MetricsThinner(std::size_t buckets) : most_(buckets < 2 ? 2 : buckets) {}

  void add(Metric metric);
  // What was kept, curve after curve by learner and name, each in the order in which it came.
  std::vector<Metric> metrics() const;

 private:
  struct Kept {
    std::uint64_t number;  // in the order of arrival
    std::int64_t step;
    std::int64_t time;
    double value;
  };
  struct Bucket {
    std::size_t count = 1;
    Kept first;
    Kept last;
    std::optional<Kept> low;
    std::optional<Kept> high;
    std::optional<Kept> broken;  // not finite
  };
  struct Curve {
    std::size_t width = 1;  // metrics of a bucket
    std::vector<Bucket> buckets;
  };

  static void join(Bucket& bucket, const Bucket& later);
  // Makes one of each pair until there are not too many.
  void thin(Curve& curve) const;

  const std::size_t most_;
  std::uint64_t next_ = 0;
  std::map<std::pair<int, std::string>, Curve> curves_;
};

}  // namespace tesser::platform
