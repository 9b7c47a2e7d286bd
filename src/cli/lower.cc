// `tesser lower`: from a plan to one program a worker.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "lowering/format.h"
#include "lowering/lower.h"
#include "partition/format.h"

namespace tesser::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExamples = R"(
Examples:
  tesser lower gpt.plan -o gpt.lowered                    one program a worker, in the folder gpt.lowered
  tesser show gpt.lowered --worker 3 --graph              what worker 3 does
  tesser lower gpt.plan --prefetch 8 -o gpt.lowered       send arguments earlier: more overlap, more memory

`tesser train --workers` lowers by itself. docs/formats/lowered.md describes the result.)";

struct Arguments {
  fs::path plan;
  std::optional<fs::path> program;
  fs::path output;
  int prefetch = lowering::LoweringOptions{}.prefetch;
};

Result<int> run_lower(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const partition::OpenedPlan opened, partition::open_plan(arguments.plan, arguments.program));
  lowering::LoweringOptions options;
  options.prefetch = arguments.prefetch;
  TESSER_ASSIGN_OR_RETURN(
      const lowering::Lowered lowered,
      lowering::lower(opened.expanded, opened.semantics, opened.catalogue, opened.record.plan, options));
  TESSER_RETURN_IF_ERROR(lowering::write_lowered(lowered, opened.record.plan.program_hash,
                                                 partition::plan_hash(opened.record, opened.expanded),
                                                 arguments.output));
  print_output("{}: {} worker{}, {} transfers of {} a step; the plan says {}\n", arguments.output.string(),
               lowered.workers.size(), lowered.workers.size() == 1 ? "" : "s", lowered.transfers,
               bytes_text(lowered.bytes), bytes_text(opened.record.predicted.bytes_per_step));
  return 0;
}

}  // namespace

void add_lower(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("lower", "Make one program a worker out of a plan");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("plan", arguments->plan, "The plan, NAME.plan")->required();
  command->add_option("--program", arguments->program, "The program, where the plan's own path to it does not hold");
  command->add_option("-o,--output", arguments->output, "Folder of the workers' programs, NAME.lowered")->required();
  command->add_option("--prefetch", arguments->prefetch, "Operators ahead of its use that an argument is sent")
      ->check(CLI::Range(0, 1 << 20));
  command->footer(kExamples);
  command->callback([arguments, &action] { action = [arguments] { return run_lower(*arguments); }; });
}

}  // namespace tesser::cli
