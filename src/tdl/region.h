// Rectangles of tensors, and intervals of index variables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace tesser::tdl {

// begin included, end not; empty when end <= begin.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return std::max<std::int64_t>(end - begin, 0); }
  bool empty() const { return end <= begin; }
  bool operator==(const Interval&) const = default;
};

// One interval a dimension; of a scalar it is {} and has one element.
using Region = std::vector<Interval>;

// One interval a variable of a node.
using Box = std::vector<Interval>;

std::int64_t volume(const Region& region);  // elements; 0 when any interval is empty
Region whole(const Shape& shape);
Region intersection(const Region& a, const Region& b);    // of the same rank
bool contains(const Region& outer, const Region& inner);  // an empty region is contained in every one
Region shifted(const Region& region, const std::vector<std::int64_t>& by);
Shape shape_of(const Region& region);
std::string region_text(const Region& region);  // "[0:4, 8:16]"

// Part `index` of an interval that is cut into `parts`, by blocks of `granularity` (the last one may be short): sizes
// differ by at most one block, larger ones first. Parts past the number of blocks are empty.
Interval part_of(const Interval& interval, std::int64_t parts, std::int64_t index, std::int64_t granularity = 1);

}  // namespace tesser::tdl
