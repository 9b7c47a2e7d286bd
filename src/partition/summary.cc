#include "partition/summary.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace tesser::partition {
namespace {

using graph::kNone;
using graph::NodeId;
using graph::ValueId;

struct Along {
  int axis = kReplicated;
  std::int64_t parts = 1;
  std::int64_t granularity = 1;
};

// Levels that cut the same axis taken together, in the order of their first.
std::vector<Along> by_axis(const std::vector<Cut>& cuts, const std::vector<Level>& levels, std::int64_t& copies) {
  std::vector<Along> axes;
  copies = 1;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    if (cuts[level].axis == kReplicated) {
      copies *= levels[level].parts;
      continue;
    }
    auto found = std::find_if(axes.begin(), axes.end(), [&](const Along& a) { return a.axis == cuts[level].axis; });
    if (found == axes.end()) found = axes.insert(axes.end(), {cuts[level].axis, 1, 1});
    found->parts *= levels[level].parts;
    found->granularity = std::max(found->granularity, cuts[level].granularity);
  }
  return axes;
}

std::string axis_text(int axis, std::size_t rank) {
  if (rank == 2) return axis == 0 ? "rows" : "columns";
  if (rank == 1) return "elements";
  return "dim " + std::to_string(axis) + " of " + std::to_string(rank);
}

}  // namespace

std::string layout_text(const std::vector<Cut>& cuts, const std::vector<Level>& levels, std::size_t rank) {
  std::int64_t copies = 1;
  std::string text;
  for (const Along& along : by_axis(cuts, levels, copies)) {
    text += (text.empty() ? "" : ", ") + axis_text(along.axis, rank) + " / " + std::to_string(along.parts);
    if (along.granularity > 1) text += " in blocks of " + std::to_string(along.granularity);
  }
  if (text.empty()) return copies == 1 ? "whole" : "whole on every worker";
  return copies == 1 ? text : text + ", " + std::to_string(copies) + " copies";
}

std::string cut_text(const std::vector<Cut>& cuts, const std::vector<Level>& levels,
                     const tdl::NodeSemantics& semantics) {
  std::int64_t copies = 1;
  std::string text;
  for (const Along& along : by_axis(cuts, levels, copies)) {
    text += (text.empty() ? "" : ", ") + semantics.variables()[static_cast<std::size_t>(along.axis)].name + " / " +
            std::to_string(along.parts);
    for (const tdl::Strategy& strategy : semantics.strategies()) {
      if (strategy.variable != along.axis) continue;
      for (const tdl::Outcome outcome : strategy.outcomes) {
        if (outcome != tdl::Outcome::kConcatenate && outcome != tdl::Outcome::kReplicated) {
          text += " (" + std::string(tdl::outcome_name(outcome)) + ")";
          break;
        }
      }
    }
  }
  if (text.empty()) return copies == 1 ? "not cut" : "all of it on every worker";
  return copies == 1 ? text : text + ", " + std::to_string(copies) + " times";
}

std::string pattern(const std::string& name) {
  std::string text;
  for (std::size_t place = 0; place < name.size();) {
    std::size_t end = place;
    while (end < name.size() && name[end] != '.' && name[end] != '/') ++end;
    const bool is_number = end > place && std::all_of(name.begin() + static_cast<std::ptrdiff_t>(place),
                                                      name.begin() + static_cast<std::ptrdiff_t>(end),
                                                      [](unsigned char c) { return std::isdigit(c) != 0; });
    text += is_number ? "*" : name.substr(place, end - place);
    if (end < name.size()) text += name[end];
    place = end + 1;
  }
  return text;
}

PlanCost plan_cost(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, const Plan& plan,
                   const Topology& topology) {
  PlanCost cost;
  cost.traffic = plan_traffic(program, semantics, plan);
  cost.memory = worker_memory(program, semantics, plan);
  cost.time = step_time(program, semantics, plan, topology, cost.traffic);
  return cost;
}

Prediction prediction(const PlanCost& cost) {
  return {cost.traffic.total, cost.traffic.level_bytes, cost.memory.state_bytes, cost.memory.peak_bytes,
          cost.time.total()};
}

std::vector<Undescribed> undescribed_operators(const graph::Program& program,
                                               const std::vector<tdl::NodeSemantics>& semantics) {
  std::map<std::pair<std::string, std::string>, Undescribed> found;
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    if (semantics[id].described()) continue;
    const graph::Node& node = program.nodes[id];
    Undescribed& entry = found[{node.op, semantics[id].misfit()}];
    if (entry.nodes++ > 0) continue;
    entry.op = node.op;
    entry.misfit = semantics[id].misfit();
    entry.first = "node " + node.name;
    if (node.module && !node.module->empty()) entry.first += " in " + *node.module;
    if (!node.source.empty()) entry.first += " at " + node.source;
  }
  std::vector<Undescribed> operators;
  for (auto& [key, entry] : found) operators.push_back(std::move(entry));
  return operators;
}

std::string warning_text(const Undescribed& undescribed) {
  return fmt::format(
      "{} has no description{}, so every worker computes all of it ({}{}); describe it in a .tdl file and give that "
      "with "
      "--tdl",
      undescribed.op, undescribed.misfit.empty() ? "" : fmt::format(" that fits ({})", undescribed.misfit),
      undescribed.nodes == 1 ? "" : fmt::format("{} nodes, first ", undescribed.nodes), undescribed.first);
}

std::vector<TensorRow> parameter_rows(const graph::Program& program, const Plan& plan) {
  std::vector<TensorRow> rows;
  std::map<std::tuple<std::string, Shape, std::string>, std::size_t> places;
  const std::vector<int> first(plan.levels.size(), 0);
  for (const ValueId input : program.inputs) {
    const graph::Value& value = program.value(input);
    if (value.role != graph::Role::kParameter && value.role != graph::Role::kBatch) continue;
    const std::string name = pattern(value.name);
    const std::string layout =
        layout_text(plan.layouts[static_cast<std::size_t>(input)], plan.levels, value.shape.size());
    const auto [place, is_new] = places.try_emplace({name, value.shape, layout}, rows.size());
    if (is_new) rows.push_back({name, value.dtype, value.shape, layout});
    TensorRow& row = rows[place->second];
    ++row.count;
    row.worker_bytes +=
        tdl::volume(owned_region(plan, program, input, first)) * static_cast<std::int64_t>(element_size(value.dtype));
  }
  return rows;
}

std::vector<ModuleRow> module_rows(const graph::Program& program, const Plan& plan, const Traffic& traffic) {
  struct Module {
    ValueId last = kNone;
    std::int64_t forward = 0;
    std::int64_t backward = 0;
    std::int64_t other = 0;
  };
  std::vector<std::pair<std::string, Module>> modules;
  std::map<std::string, std::size_t> places;
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    const graph::Node& node = program.nodes[id];
    const std::string name = node.module.value_or("");
    const auto [place, is_new] = places.try_emplace(name, modules.size());
    if (is_new) modules.emplace_back(name, Module{});
    Module& module = modules[place->second].second;
    const std::int64_t bytes = traffic.nodes[id].total();
    if (node.phase == graph::Phase::kForward) {
      module.forward += bytes;
      for (const ValueId output : node.outputs) {
        if (output != kNone) {
          module.last = output;
          break;
        }
      }
    } else {
      (node.phase == graph::Phase::kBackward ? module.backward : module.other) += bytes;
    }
  }
  std::vector<ModuleRow> rows;
  std::map<std::tuple<std::string, Shape, std::string>, std::size_t> alike;
  for (const auto& [name, module] : modules) {
    ModuleRow row;
    row.module = pattern(name);
    if (module.last != kNone) {
      row.shape = program.value(module.last).shape;
      row.layout = layout_text(plan.layouts[static_cast<std::size_t>(module.last)], plan.levels, row.shape.size());
    }
    const auto [place, is_new] = alike.try_emplace({row.module, row.shape, row.layout}, rows.size());
    if (is_new) rows.push_back(std::move(row));
    ModuleRow& all = rows[place->second];
    ++all.modules;
    all.forward_bytes += module.forward;
    all.backward_bytes += module.backward;
    all.other_bytes += module.other;
  }
  return rows;
}

std::vector<OperatorRow> operator_rows(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                                       const Plan& plan, const Traffic& traffic) {
  std::vector<OperatorRow> rows;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    const std::string& op = program.nodes[id].op;
    const std::string cut =
        semantics[id].described() ? cut_text(plan.nodes[id], plan.levels, semantics[id]) : "no description";
    const auto [place, is_new] = places.try_emplace({op, cut}, rows.size());
    if (is_new) rows.push_back({op, cut});
    ++rows[place->second].nodes;
    rows[place->second].bytes += traffic.nodes[id].total();
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.nodes > b.nodes;
  });
  return rows;
}

}  // namespace tesser::partition
