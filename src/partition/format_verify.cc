#include <algorithm>
#include <string>

#include "partition/format.h"

namespace tesser::partition {
namespace {

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

Result<void> verify(const Plan& plan, const graph::Program& expanded,
                    const std::vector<tdl::NodeSemantics>& semantics) {
  for (std::size_t level = 0; level < plan.levels.size(); ++level) {
    if (plan.levels[level].parts < 1) {
      return invalid_input("levels[" + std::to_string(level) + "] has " + std::to_string(plan.levels[level].parts) +
                           " parts");
    }
  }
  if (plan.layouts.size() != expanded.values.size() || plan.nodes.size() != expanded.nodes.size()) {
    return invalid_input("has layouts for " + counted(plan.layouts.size(), "value") + " and cuts for " +
                         counted(plan.nodes.size(), "node") + "; the program has " +
                         std::to_string(expanded.values.size()) + " and " + std::to_string(expanded.nodes.size()));
  }
  const auto levels_defect = [&](const std::vector<Cut>& cuts) -> std::string {
    if (cuts.size() != plan.levels.size()) {
      return "has " + counted(cuts.size(), "cut") + " for " + counted(plan.levels.size(), "level");
    }
    for (const Cut& cut : cuts) {
      if (cut.granularity < 1) return "is cut in blocks of " + std::to_string(cut.granularity);
    }
    return {};
  };
  for (std::size_t index = 0; index < plan.layouts.size(); ++index) {
    const graph::Value& value = expanded.values[index];
    const std::vector<Cut>& cuts = plan.layouts[index];
    if (const std::string defect = levels_defect(cuts); !defect.empty()) {
      return invalid_input("value " + value.name + " " + defect);
    }
    for (const Cut& cut : cuts) {
      if (cut.axis != kReplicated && (cut.axis < 0 || cut.axis >= static_cast<int>(value.shape.size()))) {
        return invalid_input("value " + value.name + " is cut along dimension " + std::to_string(cut.axis) +
                             "; it is " + type_text(value.dtype, value.shape));
      }
    }
  }
  for (std::size_t index = 0; index < plan.nodes.size(); ++index) {
    const graph::Node& node = expanded.nodes[index];
    const std::vector<Cut>& cuts = plan.nodes[index];
    const std::string where = "node " + node.name + ", " + node.op + ", ";
    if (const std::string defect = levels_defect(cuts); !defect.empty()) return invalid_input(where + defect);
    const std::vector<tdl::Variable>& variables = semantics[index].variables();
    for (const Cut& cut : cuts) {
      if (cut.axis == kReplicated) continue;
      if (cut.axis < 0 || cut.axis >= static_cast<int>(variables.size())) {
        return invalid_input(where + "is cut along variable " + std::to_string(cut.axis) + "; its description has " +
                             counted(variables.size(), "variable"));
      }
      const auto& strategies = semantics[index].strategies();
      if (std::none_of(strategies.begin(), strategies.end(),
                       [&](const tdl::Strategy& strategy) { return strategy.variable == cut.axis; })) {
        return invalid_input(where + "is cut along " + variables[static_cast<std::size_t>(cut.axis)].name +
                             ", along which its description has no cut");
      }
    }
  }
  return {};
}

}  // namespace tesser::partition
