#include "runtime/distributed_plan.h"

#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"
#include "graph/read.h"
#include "partition/expand.h"
#include "partition/format.h"
#include "partition/signature.h"
#include "partition/updates_at_rest.h"
#include "runtime/passes/push_gradients.h"

namespace tesser::runtime {
namespace {

// What a plan is looked for with.
Result<partition::SearchOptions> search_options(const PlanChoice& choice) {
  partition::SearchOptions options;
  options.workers = choice.workers;
  options.preset = choice.preset;
  options.memory_bytes = choice.memory_bytes;
  if (choice.topology) {
    TESSER_ASSIGN_OR_RETURN(options.topology, partition::read_topology(*choice.topology));
    TESSER_ASSIGN_OR_RETURN(options.topology,
                            partition::topology_of_replica(options.topology, choice.replicas_of_topology));
  }
  return options;
}

// Everything but the plan.
Result<partition::OpenedPlan> open_program(const std::filesystem::path& program, const PlanChoice& choice) {
  partition::OpenedPlan opened;
  opened.catalogue = tdl::Catalogue::shipped();
  for (const std::filesystem::path& file : choice.descriptions) {
    TESSER_RETURN_IF_ERROR(opened.catalogue.add_file(file.string()));
  }
  TESSER_ASSIGN_OR_RETURN(opened.captured, graph::read_program(program));
  TESSER_ASSIGN_OR_RETURN(opened.expanded, partition::expand(opened.captured));
  opened.semantics = partition::analyze_nodes(opened.expanded, opened.catalogue);
  return opened;
}

Result<partition::OpenedPlan> find_plan(const std::filesystem::path& program, const PlanChoice& choice) {
  TESSER_ASSIGN_OR_RETURN(partition::OpenedPlan opened, open_program(program, choice));
  TESSER_ASSIGN_OR_RETURN(const partition::SearchOptions options, search_options(choice));
  TESSER_ASSIGN_OR_RETURN(opened.record.plan, partition::search(opened.expanded, opened.semantics, options));
  opened.record.topology = options.topology;
  opened.record.plan.program = opened.captured.name;
  opened.record.plan.program_hash = partition::program_hash(opened.captured);
  return opened;
}

// By name: what the plan says of each.
template <typename Entries>
std::unordered_map<std::string, std::vector<partition::Cut>> by_name(
    const Entries& entries, const std::vector<std::vector<partition::Cut>>& cuts) {
  std::unordered_map<std::string, std::vector<partition::Cut>> named;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    named.emplace(entries[i].name, cuts[i]);
  }
  return named;
}

// Takes clipping out of the step and its plan, and gives its limit.
Result<double> leave_clipping_out(partition::OpenedPlan& opened) {
  TESSER_ASSIGN_OR_RETURN(const double clip_norm, take_clipping(opened.captured));
  if (clip_norm == 0) {
    return clip_norm;
  }
  partition::Plan& plan = opened.record.plan;
  const auto layouts = by_name(opened.expanded.values, plan.layouts);
  const auto nodes = by_name(opened.expanded.nodes, plan.nodes);
  TESSER_ASSIGN_OR_RETURN(opened.expanded, partition::expand(opened.captured));
  opened.semantics = partition::analyze_nodes(opened.expanded, opened.catalogue);
  plan.layouts.clear();
  for (const graph::Value& value : opened.expanded.values) {
    plan.layouts.push_back(layouts.at(value.name));
  }
  plan.nodes.clear();
  for (const graph::Node& node : opened.expanded.nodes) {
    plan.nodes.push_back(nodes.at(node.name));
  }
  return clip_norm;
}

// The cheapest cut of the forward program among those that leave what it shares with the step where the step has it.
Result<lowering::Lowered> lower_forward(const graph::Program& forward, const partition::OpenedPlan& step) {
  TESSER_ASSIGN_OR_RETURN(const graph::Program expanded, partition::expand(forward));
  const std::vector<tdl::NodeSemantics> semantics = partition::analyze_nodes(expanded, step.catalogue);
  const partition::Plan& plan = step.record.plan;
  partition::SearchOptions options;
  options.workers = static_cast<int>(plan.workers());
  options.topology = step.record.topology;
  options.levels = plan.levels;
  for (const graph::ValueId input : expanded.inputs) {
    const graph::Value& value = expanded.value(input);
    const graph::ValueId same = value.is_state() ? step.expanded.find(value.name) : graph::kNone;
    if (same != graph::kNone && step.expanded.value(same).is_state() &&
        step.expanded.value(same).shape == value.shape) {
      options.layouts[input] = plan.layouts[static_cast<std::size_t>(same)];
    }
  }
  TESSER_ASSIGN_OR_RETURN(const partition::Plan chosen, partition::search(expanded, semantics, options));
  return lowering::lower(expanded, semantics, step.catalogue, chosen, lowering::LoweringOptions{});
}

}  // namespace

Result<std::vector<partition::ReplicaChoice>> divide_workers(const std::filesystem::path& program,
                                                             const PlanChoice& choice) {
  TESSER_ASSIGN_OR_RETURN(const partition::OpenedPlan opened, open_program(program, choice));
  TESSER_ASSIGN_OR_RETURN(const partition::SearchOptions options, search_options(choice));
  return partition::replica_choices(opened.expanded, opened.semantics, options);
}

Result<ChosenPlan> lower_for_workers(const std::filesystem::path& program, const PlanChoice& choice,
                                     const graph::Program* forward) {
  partition::OpenedPlan opened;
  if (choice.plan) {
    TESSER_ASSIGN_OR_RETURN(opened, partition::open_plan(*choice.plan, program));
    const std::int64_t workers = opened.record.plan.workers();
    if (choice.workers > 0 && workers != choice.workers) {
      return invalid_input(
          fmt::format("{}: is a plan for {} workers, not {}; make one with tesser plan {} --workers {}",
                      choice.plan->string(), workers, choice.workers, program.string(), choice.workers));
    }
  } else {
    TESSER_ASSIGN_OR_RETURN(opened, find_plan(program, choice));
  }
  ChosenPlan chosen;
  if (choice.for_hub) {
    TESSER_ASSIGN_OR_RETURN(chosen.clip_norm, leave_clipping_out(opened));
    partition::update_where_parameters_lie(opened.record.plan, opened.expanded);
  }
  TESSER_ASSIGN_OR_RETURN(chosen.lowered, lowering::lower(opened.expanded, opened.semantics, opened.catalogue,
                                                          opened.record.plan, lowering::LoweringOptions{}));
  chosen.undescribed = partition::undescribed_operators(opened.expanded, opened.semantics);
  chosen.program_hash = opened.record.plan.program_hash;
  if (forward != nullptr) {
    TESSER_ASSIGN_OR_RETURN(chosen.forward, lower_forward(*forward, opened));
  }
  const std::string text = partition::plan_text(opened.record, opened.expanded);
  chosen.plan_hash = checksum_text(crc32c(text.data(), text.size()));
  return chosen;
}

}  // namespace tesser::runtime
