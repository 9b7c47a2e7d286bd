#include <algorithm>
#include <string>

#include "partition/format.h"

namespace tesser::partition {
namespace {

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// A worker's program says of which parameter its optimizer state is, so it must have some of that.
std::string optimizer_state_without_parameter(const Plan& plan, const graph::Program& program) {
  for (const graph::ValueId input : program.inputs) {
    const graph::ValueId parameter = program.value(input).of;
    if (parameter == graph::kNone ||
        plan.layouts[static_cast<std::size_t>(input)] == plan.layouts[static_cast<std::size_t>(parameter)]) {
      continue;
    }
    for (std::int64_t worker = 0; worker < plan.workers(); ++worker) {
      const std::vector<int> digits = worker_digits(plan.levels, worker);
      if (tdl::volume(owned_region(plan, program, input, digits)) > 0 &&
          tdl::volume(owned_region(plan, program, parameter, digits)) == 0) {
        return "worker " + std::to_string(worker) + " has some of " + program.value(input).name + " but nothing of " +
               program.value(parameter).name + ", of which that is the optimizer's state";
      }
    }
  }
  return {};
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
  for (const graph::StateOutput& output : expanded.state_outputs) {
    if (plan.layouts[static_cast<std::size_t>(output.state)] != plan.layouts[static_cast<std::size_t>(output.value)]) {
      return invalid_input("value " + expanded.value(output.value).name + ", the new content of " +
                           expanded.value(output.state).name + ", is laid out otherwise than that");
    }
  }
  const std::string homeless = optimizer_state_without_parameter(plan, expanded);
  if (!homeless.empty()) return invalid_input(homeless);
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
