#include "partition/level_costs.h"

#include <utility>

#include "partition/holders.h"

namespace tesser::partition {
namespace {

void append(std::vector<std::int64_t>& key, std::span<const Cut> cuts) {
  key.push_back(static_cast<std::int64_t>(cuts.size()));
  for (const Cut& cut : cuts) {
    key.push_back(cut.axis);
    key.push_back(cut.granularity);
  }
}

void append(std::vector<std::int64_t>& key, std::span<const Level> levels) {
  key.push_back(static_cast<std::int64_t>(levels.size()));
  for (const Level& level : levels) {
    key.push_back(level.parts);
  }
}

std::vector<Cut> with(const std::vector<Cut>& decided, const Cut& next) {
  std::vector<Cut> cuts = decided;
  cuts.push_back(next);
  return cuts;
}

double share(const tdl::Box& whole, const tdl::Box& part) {
  double product = 1;
  for (std::size_t variable = 0; variable < whole.size(); ++variable) {
    if (whole[variable].size() > 0) {
      product *= static_cast<double>(part[variable].size()) / static_cast<double>(whole[variable].size());
    }
  }
  return product;
}

}  // namespace

std::shared_ptr<const ClassCosts> LevelCosts::of(std::size_t node_class, const Level& level, const Decided& decided,
                                                 const Candidates& candidates) {
  std::vector<Level> levels = decided.levels;
  levels.push_back(level);
  const NodeClass& nodes = coarsening_.classes[node_class];
  Key key{nodes.signature};
  append(key, levels);
  append(key, decided.classes[node_class]);
  append(key, candidates.classes[node_class]);
  for (const auto* groups : {&nodes.operand_groups, &nodes.result_groups}) {
    for (const int group : *groups) {
      if (group < 0) {
        key.push_back(-1);
        continue;
      }
      append(key, decided.groups[static_cast<std::size_t>(group)]);
      append(key, candidates.groups[static_cast<std::size_t>(group)]);
    }
  }
  std::shared_ptr<const ClassCosts>& costs = known_[key];
  if (!costs) {
    costs = std::make_shared<const ClassCosts>(compute(node_class, levels, decided, candidates));
  }
  return costs;
}

const std::vector<tdl::Region>& LevelCosts::owned(const Shape& shape, std::span<const Cut> cuts,
                                                  std::span<const Level> levels) {
  Key key(shape.begin(), shape.end());
  append(key, cuts);
  append(key, levels);
  std::vector<tdl::Region>& regions = owned_[key];
  if (regions.empty()) {
    regions = parts_by_worker(tdl::whole(shape), cuts, levels);
  }
  return regions;
}

ClassCosts LevelCosts::compute(std::size_t node_class, std::span<const Level> levels, const Decided& decided,
                               const Candidates& candidates) {
  const NodeClass& nodes = coarsening_.classes[node_class];
  const graph::Node& node = program_.node(nodes.representative);
  const tdl::NodeSemantics& semantics = semantics_[static_cast<std::size_t>(nodes.representative)];
  const std::vector<graph::ValueId> operands = graph::values_read(node);
  ClassCosts costs;
  costs.operands.resize(operands.size());
  costs.results.resize(node.outputs.size());
  for (const Cut& option : candidates.classes[node_class]) {
    const std::vector<Cut> cuts = with(decided.classes[node_class], option);
    const NodeParts parts = node_parts(program_, node, semantics, cuts, levels);
    costs.work.push_back(share(semantics.whole_box(), parts_by_worker(semantics.whole_box(), cuts, levels).front()));

    const auto pair_costs = [&](graph::ValueId value, int group, std::int64_t partial_results, const auto& elements) {
      std::vector<double> by_layout;
      for (const Cut& layout : candidates.groups[static_cast<std::size_t>(group)]) {
        const std::vector<Cut> layouts = with(decided.groups[static_cast<std::size_t>(group)], layout);
        const std::vector<tdl::Region>& regions = owned(program_.value(value).shape, layouts, levels);
        double sum = 0;
        if (partial_results > 2) {
          const std::vector<tdl::Region> shares = shares_of(regions, layouts, levels, partial_results);
          for (std::size_t worker = 0; worker < regions.size(); ++worker) {
            sum += elements(worker, regions[worker], shares[worker]);
          }
        } else {
          for (std::size_t worker = 0; worker < regions.size(); ++worker) {
            sum += elements(worker, regions[worker], regions[worker]);
          }
        }
        by_layout.push_back(sum * static_cast<double>(element_size(program_.value(value).dtype)));
      }
      return by_layout;
    };
    for (std::size_t operand = 0; operand < operands.size(); ++operand) {
      costs.operands[operand].push_back(
          pair_costs(operands[operand], nodes.operand_groups[operand], 1,
                     [&](std::size_t worker, const tdl::Region& region, const tdl::Region& /*share*/) {
                       return parts.counted[operand] ? operand_elements(parts.operands[operand][worker], region) : 0.0;
                     }));
    }
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      if (nodes.result_groups[result] < 0) {
        continue;
      }
      costs.results[result].push_back(pair_costs(
          node.outputs[result], nodes.result_groups[result], parts.partial_results[result],
          [&](std::size_t worker, const tdl::Region& region, const tdl::Region& share) {
            return result_elements(parts.results[result][worker], parts.partial_results[result], region, share);
          }));
    }
  }
  return costs;
}

}  // namespace tesser::partition
