// `tesser plan`: how a step is cut over workers.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "graph/read.h"
#include "partition/expand.h"
#include "partition/format.h"
#include "partition/replicas.h"
#include "partition/search.h"
#include "partition/signature.h"
#include "partition/summary.h"

namespace tesser::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExamples = R"(
Examples:
  tesser plan gpt.tesser --workers 8 -o gpt.plan                    the fastest plan that is found
  tesser plan gpt.tesser --workers 8 --memory 12GiB -o gpt.plan     that fits workers of so much memory
  tesser plan gpt.tesser --workers 8 --preset tofu -o gpt.plan      least communication, everything cut at rest
  tesser plan gpt.tesser --workers 8 --topology machines.json -o gpt.plan
  tesser plan gpt.tesser --workers 8 --replicas auto -o gpt.plan    replicas that take a batch each, if that is faster
  tesser show gpt.plan                                              what is cut how, what moves and why

docs/formats/plan.md describes plans and topologies, docs/tdl.md descriptions of operators (--tdl).)";

struct Arguments {
  fs::path program;
  int workers = 0;
  std::string preset = "default";
  std::string memory;
  std::string replicas = "1";
  fs::path topology;
  std::vector<fs::path> descriptions;
  fs::path output;
  bool json = false;
};

// A path as a file in `folder` names it.
std::string relative_to(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path from = fs::weakly_canonical(folder.empty() ? fs::path(".") : folder, error);
  return fs::weakly_canonical(path, error).lexically_relative(from).generic_string();
}

Result<partition::SearchOptions> search_options(const Arguments& arguments) {
  partition::SearchOptions options;
  options.workers = arguments.workers;
  options.preset = partition::preset_from_name(arguments.preset).value_or(partition::Preset::kDefault);
  if (!arguments.memory.empty()) {
    const std::optional<std::int64_t> bytes = bytes_from_text(arguments.memory);
    if (!bytes || *bytes < 1) {
      return invalid_input(
          fmt::format("--memory {}: expected a size such as 12GiB, 500MB or 800000000", arguments.memory));
    }
    options.memory_bytes = *bytes;
  }
  if (!arguments.topology.empty()) {
    TESSER_ASSIGN_OR_RETURN(options.topology, partition::read_topology(arguments.topology));
  }
  return options;
}

void warn(const std::vector<partition::Undescribed>& undescribed) {
  for (const partition::Undescribed& it : undescribed) {
    print_message("tesser plan: warning: {}\n", partition::warning_text(it));
  }
}

void print_json(const Arguments& arguments, const partition::PlanRecord& record, const partition::SearchReport& report,
                const std::vector<partition::Undescribed>& undescribed, std::size_t nodes) {
  std::vector<std::string> names;
  for (const partition::Undescribed& it : undescribed) {
    if (names.empty() || names.back() != json_string(it.op)) names.push_back(json_string(it.op));
  }
  const partition::Prediction& predicted = record.predicted;
  print_summary(
      arguments.output,
      "{{\n\"program\":{},\n\"program_hash\":{},\n\"preset\":{},\n\"workers\":{},\n\"nodes\":{},\n\"seconds\":{},\n"
      "\"bytes_per_step\":{},\n\"level_bytes\":[{}],\n\"state_bytes_per_worker\":{},\n\"peak_bytes_per_worker\":{},\n"
      "\"step_seconds\":{},\n\"replicas\":{},\n\"undescribed\":[{}]\n}}\n",
      json_string(record.plan.program), json_string(record.plan.program_hash), json_string(record.plan.preset),
      record.plan.workers(), nodes, json_float(report.seconds), predicted.bytes_per_step,
      fmt::join(predicted.level_bytes, ","), predicted.state_bytes, predicted.peak_bytes, json_float(predicted.seconds),
      record.replicas, fmt::join(names, ","));
}

Result<int> run_plan(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const partition::SearchOptions options, search_options(arguments));
  TESSER_ASSIGN_OR_RETURN(AtomicFile output, AtomicFile::create_output(arguments.output));
  TESSER_ASSIGN_OR_RETURN(const graph::Program captured, graph::read_program(arguments.program));
  tdl::Catalogue catalogue = tdl::Catalogue::shipped();
  partition::PlanRecord record;
  for (const fs::path& file : arguments.descriptions) {
    TESSER_RETURN_IF_ERROR(catalogue.add_file(file.string()));
    record.descriptions.push_back(relative_to(file, arguments.output.parent_path()));
  }
  TESSER_ASSIGN_OR_RETURN(const graph::Program program, partition::expand(captured));
  const std::vector<tdl::NodeSemantics> semantics = partition::analyze_nodes(program, catalogue);
  const std::vector<partition::Undescribed> undescribed = partition::undescribed_operators(program, semantics);
  warn(undescribed);
  partition::SearchReport report;
  record.topology = options.topology;
  std::string table;
  double step_seconds = 0;
  if (arguments.replicas == "auto") {
    TESSER_ASSIGN_OR_RETURN(const std::vector<partition::ReplicaChoice> choices,
                            partition::replica_choices(program, semantics, options));
    const partition::ReplicaChoice& best = partition::fastest(choices);
    table = partition::print(choices);
    record.plan = best.plan;
    record.topology = best.topology;
    record.replicas = best.replicas;
    step_seconds = best.seconds;
  } else {
    TESSER_ASSIGN_OR_RETURN(record.plan, partition::search(program, semantics, options, &report));
  }
  record.plan.program = captured.name;
  record.plan.program_hash = partition::program_hash(captured);
  record.memory_bytes = options.memory_bytes;
  record.program_path = relative_to(arguments.program, arguments.output.parent_path());
  record.predicted = partition::prediction(partition::plan_cost(program, semantics, record.plan, record.topology));
  TESSER_RETURN_IF_ERROR(partition::write_plan(record, program, std::move(output)));
  if (arguments.json) {
    print_json(arguments, record, report, undescribed, program.nodes.size());
    return 0;
  }
  if (!table.empty()) {
    print_summary(arguments.output, "{}: {} workers as {} replica{} of {}, {:.3g} s a step of {} expected\n{}",
                  arguments.output.string(), arguments.workers, record.replicas, record.replicas == 1 ? "" : "s",
                  record.plan.workers(), step_seconds,
                  record.replicas == 1 ? "one batch" : fmt::format("{} batches", record.replicas), table);
    return 0;
  }
  const partition::Prediction& predicted = record.predicted;
  print_summary(arguments.output, "{}: {} for {} worker{}, found in {:.2f} s\n", arguments.output.string(),
                record.plan.preset, record.plan.workers(), record.plan.workers() == 1 ? "" : "s", report.seconds);
  print_summary(arguments.output,
                "  {} moved a step, {} of memory a worker ({} of it state and batch), {:.3g} s a step expected\n",
                bytes_text(predicted.bytes_per_step), bytes_text(predicted.peak_bytes),
                bytes_text(predicted.state_bytes), predicted.seconds);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("plan", "Find out how to cut a step over workers");
  const auto arguments = std::make_shared<Arguments>();
  std::vector<std::string> presets;
  for (const partition::Preset preset : partition::presets()) {
    presets.emplace_back(partition::preset_name(preset));
  }
  command->add_option("program", arguments->program, "Program directory NAME.tesser")->required();
  command->add_option("-w,--workers", arguments->workers, "How many workers")
      ->required()
      ->check(CLI::Range(1, 1 << 16));
  command
      ->add_option("--preset", arguments->preset,
                   "default: least time within --memory; tofu: least communication with everything cut at rest; or a "
                   "baseline: " +
                       fmt::format("{}", fmt::join(presets, ", ")))
      ->check(CLI::IsMember(presets));
  command->add_option("--memory", arguments->memory, "What a worker has: 12GiB, 500MB (only for preset default)");
  command
      ->add_option("--replicas", arguments->replicas,
                   "auto: divide the workers into replicas that take a batch each, as gives most batches a second "
                   "within --memory; 1: one copy of the step, over all workers")
      ->capture_default_str()
      ->check(CLI::IsMember({"1", "auto"}));
  command->add_option("--topology", arguments->topology, "What is known of machines and links (JSON)");
  command->add_option("--tdl", arguments->descriptions, "Descriptions of operators besides those shipped");
  command->add_option("-o,--output", arguments->output, "The plan, NAME.plan")->required();
  command->add_flag("--json", arguments->json, "Print what was found as JSON");
  command->footer(kExamples);
  command->callback([arguments, &action] { action = [arguments] { return run_plan(*arguments); }; });
}

}  // namespace tesser::cli
