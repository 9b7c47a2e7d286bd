#include "tdl/region.h"

#include "base/check.h"

namespace tesser::tdl {

std::int64_t volume(const Region& region) {
  std::int64_t elements = 1;
  for (const Interval& interval : region) {
    elements *= interval.size();
  }
  return elements;
}

Region whole(const Shape& shape) {
  Region region;
  region.reserve(shape.size());
  for (const std::int64_t size : shape) {
    region.push_back({0, size});
  }
  return region;
}

Region intersection(const Region& a, const Region& b) {
  TESSER_CHECK(a.size() == b.size(), "intersection of " + region_text(a) + " and " + region_text(b));
  Region region(a.size());
  for (std::size_t d = 0; d < a.size(); ++d) {
    region[d].begin = std::max(a[d].begin, b[d].begin);
    region[d].end = std::max(region[d].begin, std::min(a[d].end, b[d].end));
  }
  return region;
}

bool contains(const Region& outer, const Region& inner) {
  TESSER_CHECK(outer.size() == inner.size(), region_text(outer) + " and " + region_text(inner));
  bool inside = true;
  for (std::size_t d = 0; d < inner.size(); ++d) {
    if (inner[d].empty()) {
      return true;
    }
    inside = inside && outer[d].begin <= inner[d].begin && inner[d].end <= outer[d].end;
  }
  return inside;
}

Region shifted(const Region& region, const std::vector<std::int64_t>& by) {
  TESSER_CHECK(region.size() == by.size(), "a shift of another rank than " + region_text(region));
  Region result = region;
  for (std::size_t d = 0; d < by.size(); ++d) {
    result[d].begin += by[d];
    result[d].end += by[d];
  }
  return result;
}

Shape shape_of(const Region& region) {
  Shape shape;
  shape.reserve(region.size());
  for (const Interval& interval : region) {
    shape.push_back(interval.size());
  }
  return shape;
}

std::string region_text(const Region& region) {
  std::string text = "[";
  for (std::size_t d = 0; d < region.size(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(region[d].begin) + ":" + std::to_string(region[d].end);
  }
  return text + "]";
}

Interval part_of(const Interval& interval, std::int64_t parts, std::int64_t index, std::int64_t granularity) {
  TESSER_CHECK(parts > 0 && index >= 0 && index < parts && granularity > 0,
               "part " + std::to_string(index) + " of " + std::to_string(parts) + " by blocks of " +
                   std::to_string(granularity));
  const std::int64_t blocks = (interval.size() + granularity - 1) / granularity;
  const std::int64_t each = blocks / parts;
  const std::int64_t larger = blocks % parts;  // parts that hold one block more
  const auto begin_block = [&](std::int64_t part) { return part * each + std::min(part, larger); };
  const auto place = [&](std::int64_t block) {
    return std::min(interval.begin + block * granularity, std::max(interval.begin, interval.end));
  };
  return {place(begin_block(index)), place(begin_block(index + 1))};
}

}  // namespace tesser::tdl
