#include "partition/placement.h"

#include <algorithm>
#include <set>

#include "partition/holders.h"

namespace tesser::partition {
namespace {

std::int64_t overlap(const tdl::Region& a, const tdl::Region& b) {
  std::int64_t elements = 1;
  for (std::size_t dimension = 0; dimension < a.size(); ++dimension) {
    const std::int64_t length =
        std::min(a[dimension].end, b[dimension].end) - std::max(a[dimension].begin, b[dimension].begin);
    if (length <= 0) {
      return 0;
    }
    elements *= length;
  }
  return elements;
}

std::vector<std::vector<int>> digits_by_worker(std::span<const Level> levels) {
  std::vector<std::vector<int>> digits;
  for (std::int64_t worker = 0; worker < worker_count(levels); ++worker) {
    digits.push_back(worker_digits(levels, worker));
  }
  return digits;
}

}  // namespace

std::vector<bool> values_in_use(const graph::Program& program) {
  std::vector<bool> used(program.values.size(), false);
  const auto mark = [&used](graph::ValueId value) {
    if (value != graph::kNone) {
      used[static_cast<std::size_t>(value)] = true;
    }
  };
  for (const graph::Node& node : program.nodes) {
    for (const graph::ValueId value : graph::values_read(node)) {
      mark(value);
    }
  }
  mark(program.loss);
  for (const auto* outputs : {&program.metrics, &program.results}) {
    for (const graph::NamedOutput& output : *outputs) {
      mark(output.value);
    }
  }
  for (const graph::StateOutput& output : program.state_outputs) {
    mark(output.value);
  }
  return used;
}

std::int64_t worker_count(std::span<const Level> levels) {
  std::int64_t workers = 1;
  for (const Level& level : levels) {
    workers *= level.parts;
  }
  return workers;
}

std::vector<tdl::Region> parts_by_worker(const tdl::Region& whole, std::span<const Cut> cuts,
                                         std::span<const Level> levels) {
  std::vector<tdl::Region> parts{whole};
  for (std::size_t level = 0; level < levels.size(); ++level) {
    std::vector<tdl::Region> finer;
    finer.reserve(parts.size() * static_cast<std::size_t>(levels[level].parts));
    for (const tdl::Region& part : parts) {
      for (int index = 0; index < levels[level].parts; ++index) {
        finer.push_back(part);
        if (cuts[level].axis != kReplicated) {
          tdl::Interval& interval = finer.back()[static_cast<std::size_t>(cuts[level].axis)];
          interval = tdl::part_of(interval, levels[level].parts, index, cuts[level].granularity);
        }
      }
    }
    parts = std::move(finer);
  }
  return parts;
}

std::int64_t owners_of_a_part(std::span<const Cut> cuts, std::span<const Level> levels) {
  std::int64_t owners = 1;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    owners *= cuts[level].axis == kReplicated ? levels[level].parts : 1;
  }
  return owners;
}

NodeParts node_parts(const graph::Program& program, const graph::Node& node, const tdl::NodeSemantics& semantics,
                     std::span<const Cut> cuts, std::span<const Level> levels) {
  const std::vector<tdl::Box> boxes = parts_by_worker(semantics.whole_box(), cuts, levels);
  const std::vector<std::vector<int>> digits = digits_by_worker(levels);
  NodeParts parts;
  const std::vector<graph::ValueId> values = graph::values_read(node);
  for (std::size_t operand = 0; operand < values.size(); ++operand) {
    const tdl::Region all = tdl::whole(program.value(values[operand]).shape);
    std::vector<tdl::Region>& regions = parts.operands.emplace_back();
    regions.reserve(boxes.size());
    for (const tdl::Box& box : boxes) {
      if (semantics.is_empty(box) || semantics.operand_is_zero(operand, box)) {
        regions.emplace_back(all.size(), tdl::Interval{});
      } else {
        regions.push_back(tdl::intersection(semantics.operand_region(operand, box), all));
      }
    }
    const auto earlier =
        std::find(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(operand), values[operand]);
    const auto place = static_cast<std::size_t>(earlier - values.begin());
    parts.counted.push_back(place == operand || parts.operands[place] != regions);
  }
  for (std::size_t result = 0; result < node.outputs.size(); ++result) {
    std::vector<tdl::Region>& regions = parts.results.emplace_back();
    std::int64_t& partial = parts.partial_results.emplace_back(1);
    if (node.outputs[result] == graph::kNone) {
      continue;
    }
    const std::size_t rank = program.value(node.outputs[result]).shape.size();
    regions.reserve(boxes.size());
    for (const tdl::Box& box : boxes) {
      regions.push_back(semantics.is_empty(box) ? tdl::Region(std::max<std::size_t>(rank, 1), tdl::Interval{})
                                                : semantics.result_region(result, box));
    }
    std::set<std::int64_t> numbers;
    for (std::size_t worker = 0; worker < boxes.size(); ++worker) {
      if (!semantics.is_empty(boxes[worker])) {
        numbers.insert(part_number(semantics, result, cuts, levels, digits[worker]));
      }
    }
    partial = std::max<std::int64_t>(1, static_cast<std::int64_t>(numbers.size()));
  }
  return parts;
}

double operand_elements(const tdl::Region& needed, const tdl::Region& owned) {
  return static_cast<double>(tdl::volume(needed) - overlap(needed, owned));
}

double result_elements(const tdl::Region& made, std::int64_t partial_results, const tdl::Region& owned,
                       const tdl::Region& share) {
  const std::int64_t added = tdl::volume(share);
  // An empty part of a scalar is one interval of no elements.
  const std::int64_t made_here = made.size() == share.size() ? overlap(made, share) : 0;
  return static_cast<double>(partial_results * added - made_here + tdl::volume(owned) - added);
}

}  // namespace tesser::partition
