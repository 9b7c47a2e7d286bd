#include "partition/plan.h"

#include "base/check.h"

namespace tesser::partition {
namespace {

// Cuts `intervals` at every level to what a worker with these digits has of them.
void cut(std::vector<tdl::Interval>& intervals, const std::vector<Cut>& cuts, const std::vector<Level>& levels,
         const std::vector<int>& digits) {
  TESSER_CHECK(cuts.size() == levels.size() && digits.size() == levels.size(),
               std::to_string(cuts.size()) + " cuts and " + std::to_string(digits.size()) + " digits for " +
                   std::to_string(levels.size()) + " levels");
  for (std::size_t level = 0; level < levels.size(); ++level) {
    if (cuts[level].axis == kReplicated) continue;
    tdl::Interval& interval = intervals[static_cast<std::size_t>(cuts[level].axis)];
    interval = tdl::part_of(interval, levels[level].parts, digits[level], cuts[level].granularity);
  }
}

}  // namespace

std::int64_t Plan::workers() const {
  std::int64_t workers = 1;
  for (const Level& level : levels) workers *= level.parts;
  return workers;
}

std::vector<int> worker_digits(std::span<const Level> levels, std::int64_t worker) {
  std::vector<int> digits(levels.size());
  for (std::size_t level = levels.size(); level-- > 0;) {
    digits[level] = static_cast<int>(worker % levels[level].parts);
    worker /= levels[level].parts;
  }
  return digits;
}

tdl::Region owned_region(const Plan& plan, const graph::Program& program, graph::ValueId value,
                         const std::vector<int>& digits) {
  tdl::Region region = tdl::whole(program.value(value).shape);
  cut(region, plan.layouts[static_cast<std::size_t>(value)], plan.levels, digits);
  return region;
}

tdl::Box worker_box(const Plan& plan, graph::NodeId node, const tdl::NodeSemantics& semantics,
                    const std::vector<int>& digits) {
  tdl::Box box = semantics.whole_box();
  cut(box, plan.nodes[static_cast<std::size_t>(node)], plan.levels, digits);
  return box;
}

}  // namespace tesser::partition
