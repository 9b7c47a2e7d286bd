#include "runtime/distributed_plan.h"

#include <utility>

#include <fmt/format.h>

#include "graph/read.h"
#include "partition/expand.h"
#include "partition/format.h"
#include "partition/signature.h"
#include "runtime/checksum.h"

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
  opened.record.plan.program = opened.captured.name;
  opened.record.plan.program_hash = partition::program_hash(opened.captured);
  return opened;
}

}  // namespace

Result<ChosenPlan> lower_for_workers(const std::filesystem::path& program, const PlanChoice& choice) {
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
  const std::string text = partition::plan_text(opened.record, opened.expanded);
  chosen.plan_hash = checksum_text(crc32c(text.data(), text.size()));
  return chosen;
}

}  // namespace tesser::runtime
