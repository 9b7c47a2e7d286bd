#include "runtime/distributed_plan.h"

#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"
#include "graph/read.h"
#include "partition/expand.h"
#include "partition/format.h"
#include "partition/signature.h"

namespace tesser::runtime {
namespace {

Result<partition::OpenedPlan> find_plan(const std::filesystem::path& program, const PlanChoice& choice) {
  partition::OpenedPlan opened;
  opened.catalogue = tdl::Catalogue::shipped();
  for (const std::filesystem::path& file : choice.descriptions) {
    TESSER_RETURN_IF_ERROR(opened.catalogue.add_file(file.string()));
  }
  TESSER_ASSIGN_OR_RETURN(opened.captured, graph::read_program(program));
  TESSER_ASSIGN_OR_RETURN(opened.expanded, partition::expand(opened.captured));
  TESSER_ASSIGN_OR_RETURN(opened.semantics, partition::analyze_nodes(opened.expanded, opened.catalogue));
  partition::SearchOptions options;
  options.workers = choice.workers;
  options.preset = choice.preset;
  options.memory_bytes = choice.memory_bytes;
  if (choice.topology) {
    TESSER_ASSIGN_OR_RETURN(options.topology, partition::read_topology(*choice.topology));
  }
  TESSER_ASSIGN_OR_RETURN(opened.record.plan, partition::search(opened.expanded, opened.semantics, options));
  opened.record.topology = options.topology;
  opened.record.plan.program = opened.captured.name;
  opened.record.plan.program_hash = partition::program_hash(opened.captured);
  return opened;
}

// The cheapest cut of the forward program among those that leave what it shares with the step where the step has it.
Result<lowering::Lowered> lower_forward(const graph::Program& forward, const partition::OpenedPlan& step) {
  TESSER_ASSIGN_OR_RETURN(const graph::Program expanded, partition::expand(forward));
  TESSER_ASSIGN_OR_RETURN(const std::vector<tdl::NodeSemantics> semantics,
                          partition::analyze_nodes(expanded, step.catalogue));
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
  TESSER_ASSIGN_OR_RETURN(chosen.lowered, lowering::lower(opened.expanded, opened.semantics, opened.catalogue,
                                                          opened.record.plan, lowering::LoweringOptions{}));
  chosen.program_hash = opened.record.plan.program_hash;
  if (forward != nullptr) {
    TESSER_ASSIGN_OR_RETURN(chosen.forward, lower_forward(*forward, opened));
  }
  const std::string text = partition::plan_text(opened.record, opened.expanded);
  chosen.plan_hash = checksum_text(crc32c(text.data(), text.size()));
  return chosen;
}

}  // namespace tesser::runtime
