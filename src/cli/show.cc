#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/show_lowered.h"
#include "cli/show_plan.h"
#include "graph/names.h"
#include "graph/print.h"
#include "graph/read.h"
#include "graph/summary.h"
#include "graph/write.h"
#include "lowering/format.h"
#include "partition/expand.h"
#include "partition/format.h"
#include "runtime/executor.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/peak_memory.h"

namespace tesser::cli {
namespace {

using graph::ModuleSummary;
using graph::Phase;
using graph::Program;
using graph::Role;
using graph::Summary;
using memory::MemoryPrediction;
using runtime::ExecutorOptions;

constexpr const char* kExamples = R"(
Examples:
  tesser show mnist.tesser                      what it is made of, by module
  tesser show mnist.tesser --graph              every operator, one a line
  tesser show mnist.tesser --graph --prepared   the same as a run executes it: fused, updates in their place
  tesser show mnist.tesser --graph --expanded   the same as planning sees it: rewritten so that every operator can be cut
  tesser show mnist.tesser --memory             what is live where memory is fullest
  tesser show mnist.tesser --program forward    the forward program beside the step
  tesser show mnist.tesser --json               the same as numbers
  tesser show mnist.plan                        how a plan cuts a step, what moves and why, other plans beside it
  tesser show mnist.plan --worker 3             what one worker has and computes
  tesser show mnist.lowered                     what each worker's program sends and needs
  tesser show mnist.lowered --worker 3          one worker's program, with --graph and --memory as any other)";

constexpr std::size_t kLiveShown = 20;

struct Arguments {
  std::filesystem::path path;
  std::string program = "program";
  int depth = 3;
  bool depth_given = false;
  bool graph = false;
  bool prepared = false;
  bool expanded = false;
  std::filesystem::path output;  // of --expanded; empty: print
  bool json = false;
  bool memory = false;
  std::filesystem::path of;            // of a plan: its program
  std::optional<std::int64_t> worker;  // of a plan or a lowered program
  bool alone = false;                  // of a plan: without the others
};

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t place = digits.size(); place > 3;) {
    place -= 3;
    digits.insert(place, ",");
  }
  return digits;
}

std::string operations_text(std::int64_t operations) {
  constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  auto amount = static_cast<double>(operations);
  std::size_t unit = 0;
  for (; amount >= 1000 && unit + 1 < std::size(kUnits); ++unit) {
    amount /= 1000;
  }
  return unit == 0 ? fmt::format("{} {}", operations, kUnits[0]) : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

template <typename Array>
std::int64_t at(const Array& by_phase, Phase phase) {
  return by_phase[static_cast<std::size_t>(phase)];
}

template <typename Array>
std::int64_t sum(const Array& array) {
  std::int64_t total = 0;
  for (const std::int64_t number : array) {
    if (__builtin_add_overflow(total, number, &total)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return total;
}

constexpr Phase kAllPhases[] = {Phase::kForward, Phase::kBackward, Phase::kClip, Phase::kUpdate};

// "12 forward, 20 backward", without phases that have none.
template <typename Array, typename Text>
std::string phases_text(const Array& by_phase, const Text& text) {
  std::string all;
  for (const Phase phase : kAllPhases) {
    if (at(by_phase, phase) > 0) {
      all += fmt::format("{}{} {}", all.empty() ? "" : ", ", text(at(by_phase, phase)), graph::phase_name(phase));
    }
  }
  return all;
}

void print_line(std::string_view key, const std::string& text) { print_output("  {:<17} {}\n", key, text); }

void print_values(const Program& program, Role role, std::string_view key) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> shown;
  std::size_t count = 0;
  for (const graph::ValueId input : program.inputs) {
    const graph::Value& value = program.value(input);
    if (value.role == role && ++count <= kShown) {
      shown.push_back(value.name + " " + type_text(value.dtype, value.shape));
    }
  }
  if (count > 0) {
    print_line(key, fmt::format("{}{}", fmt::join(shown, ", "),
                                count > kShown ? fmt::format(" and {} more", count - kShown) : ""));
  }
}

void print_totals(const Arguments& arguments, const Program& program, const Summary& summary,
                  const MemoryPrediction& memory) {
  print_output("{}{}: {} program {}\n", arguments.path.string(),
               arguments.worker ? fmt::format(", worker {}", *arguments.worker) : "", graph::kind_name(program.kind),
               program.name);
  if (!program.producer.empty()) {
    print_line("written by", program.producer);
  }
  const auto bytes = [&](Role role) { return summary.bytes[static_cast<std::size_t>(role)]; };
  const auto count = [&](Role role) { return summary.values[static_cast<std::size_t>(role)]; };
  const std::int64_t frozen = summary.parameters - summary.trainable_parameters;
  print_line("parameters", fmt::format("{} in {} tensors, {}{}", grouped(summary.parameters), count(Role::kParameter),
                                       bytes_text(bytes(Role::kParameter)),
                                       frozen > 0 ? fmt::format("; {} of them frozen", grouped(frozen)) : ""));
  const std::pair<Role, const char*> kOthers[] = {
      {Role::kOptimizerState, "optimizer state"}, {Role::kBuffer, "buffers"}, {Role::kConstant, "constants"}};
  for (const auto& [role, key] : kOthers) {
    if (count(role) > 0) {
      print_line(key, fmt::format("{} in {} tensors", bytes_text(bytes(role)), count(role)));
    }
  }
  print_values(program, Role::kBatch, "batch");
  if (program.first_step > 0) {
    print_line("steps done", grouped(program.first_step));
  }
  for (std::size_t index = 0; index < program.schedules.size(); ++index) {
    print_line(program.schedules.size() == 1 ? "learning rate" : fmt::format("learning rate/{}", index),
               graph::schedule_text(program.schedules[index]));
  }
  std::vector<std::string> outputs;
  for (const auto* const named : {&program.metrics, &program.results}) {
    for (const graph::NamedOutput& output : *named) {
      outputs.push_back(output.name + " " +
                        type_text(program.value(output.value).dtype, program.value(output.value).shape));
    }
  }
  if (!outputs.empty()) {
    print_line(program.kind == graph::Kind::kStep ? "metrics" : "results", fmt::format("{}", fmt::join(outputs, ", ")));
  }
  print_line("nodes", fmt::format("{} ({})", grouped(sum(summary.nodes)), phases_text(summary.nodes, grouped)));
  print_line("operations", fmt::format("{} ({})", operations_text(sum(summary.floating_point_operations)),
                                       phases_text(summary.floating_point_operations, operations_text)));
  print_line("peak memory",
             fmt::format("{} expected ({} state and batch, {} results of operators)", bytes_text(memory.peak_bytes),
                         bytes_text(memory.state_bytes), bytes_text(memory.arena_bytes)));
}

std::string_view last_name(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// End of the subtree that begins at `begin`.
std::size_t subtree_end(const std::vector<ModuleSummary>& modules, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < modules.size() && modules[end].depth > modules[begin].depth) {
    ++end;
  }
  return end;
}

bool are_alike(const std::vector<ModuleSummary>& modules, std::size_t a, std::size_t a_end, std::size_t b,
               std::size_t b_end) {
  if (a_end - a != b_end - b) {
    return false;
  }
  for (std::size_t place = 0; place < a_end - a; ++place) {
    const ModuleSummary& left = modules[a + place];
    const ModuleSummary& right = modules[b + place];
    if (left.depth != right.depth || left.parameters != right.parameters || left.nodes != right.nodes ||
        left.floating_point_operations != right.floating_point_operations ||
        (place > 0 && last_name(left.path) != last_name(right.path))) {
      return false;
    }
  }
  return true;
}

// Neighbours that are alike in everything, as the layers of a transformer, are one row.
void print_modules(const std::vector<ModuleSummary>& modules, bool with_backward) {
  struct Row {
    std::string name;
    const ModuleSummary* module;
  };
  std::vector<Row> rows;
  for (std::size_t begin = 0; begin < modules.size();) {
    const ModuleSummary& module = modules[begin];
    const std::size_t end = subtree_end(modules, begin);
    std::size_t next = end;
    int alike = 1;
    while (begin > 0 && next < modules.size() && modules[next].depth == module.depth &&
           are_alike(modules, begin, end, next, subtree_end(modules, next))) {
      next = subtree_end(modules, next);
      ++alike;
    }
    std::string name =
        begin == 0 ? "(all)"
                   : std::string(2 * static_cast<std::size_t>(module.depth), ' ') + std::string(last_name(module.path));
    if (alike > 1) {
      std::size_t last = next - 1;
      while (modules[last].depth > module.depth) {
        --last;
      }
      name += fmt::format(" to {}, each", last_name(modules[last].path));
    }
    rows.push_back({std::move(name), &module});
    for (std::size_t child = begin + 1; alike > 1 && child < end; ++child) {  // the first one's parts stand for all
      rows.push_back({std::string(2 * static_cast<std::size_t>(modules[child].depth), ' ') +
                          std::string(last_name(modules[child].path)),
                      &modules[child]});
    }
    begin = alike > 1 ? next : begin + 1;
  }
  std::size_t width = 6;
  for (const Row& row : rows) {
    width = std::max(width, row.name.size());
  }
  print_output("\n{:<{}}  {:>18} {:>8} {:>14}", "module", width, "parameters", "nodes", "forward");
  print_output("{}\n", with_backward ? fmt::format(" {:>14}", "backward") : "");
  for (const Row& row : rows) {
    const auto& operations = row.module->floating_point_operations;
    print_output("{:<{}}  {:>18} {:>8} {:>14}", row.name, width, grouped(row.module->parameters),
                 grouped(row.module->nodes), operations_text(at(operations, Phase::kForward)));
    print_output("{}\n",
                 with_backward ? fmt::format(" {:>14}", operations_text(at(operations, Phase::kBackward))) : "");
  }
}

void print_operators(const Summary& summary) {
  std::vector<std::pair<std::string, std::int64_t>> operators(summary.operators.begin(), summary.operators.end());
  std::stable_sort(operators.begin(), operators.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::size_t width = 8;
  for (const auto& [op, count] : operators) {
    width = std::max(width, op.size());
  }
  print_output("\n{:<{}}  {:>8}\n", "operator", width, "nodes");
  for (const auto& [op, count] : operators) {
    print_output("{:<{}}  {:>8}\n", op, width, grouped(count));
  }
}

void print_memory(const Program& program, const MemoryPrediction& memory) {
  if (memory.peak_node == graph::kNone) {
    return;
  }
  const graph::Node& node = program.node(memory.peak_node);
  print_output("\nmemory is fullest at node {} of {}, with {} of results live:\n  {}\n\n", memory.peak_node + 1,
               program.nodes.size(), bytes_text(memory.live_bytes), graph::print_node(program, node));
  print_output("{:>12}  {}\n", "bytes", "live there");
  std::int64_t rest = 0;
  for (std::size_t place = 0; place < memory.live_at_peak.size(); ++place) {
    const memory::LiveValue& live = memory.live_at_peak[place];
    if (place >= kLiveShown) {
      rest += live.bytes;
      continue;
    }
    const graph::Value& value = program.value(live.value);
    const graph::Node& producer = program.node(value.producer);
    print_output("{:>12}  {}  {}  {}{}\n", bytes_text(live.bytes), value.name, type_text(value.dtype, value.shape),
                 producer.op, producer.module.value_or("").empty() ? "" : " in " + *producer.module);
  }
  if (rest > 0) {
    print_output("{:>12}  {} more\n", bytes_text(rest), memory.live_at_peak.size() - kLiveShown);
  }
}

template <typename Array>
std::string phases_json(const Array& by_phase) {
  std::vector<std::string> entries;
  for (const Phase phase : kAllPhases) {
    entries.push_back(fmt::format("\"{}\":{}", graph::phase_name(phase), at(by_phase, phase)));
  }
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}

void print_json(const Program& program, const Program& prepared, const Summary& summary,
                const MemoryPrediction& memory) {
  std::vector<std::string> inputs;
  for (std::size_t role = 0; role < summary.values.size(); ++role) {
    inputs.push_back(fmt::format("\"{}\":{{\"values\":{},\"bytes\":{}}}", graph::role_name(static_cast<Role>(role)),
                                 summary.values[role], summary.bytes[role]));
  }
  std::vector<std::string> batch;
  for (const graph::ValueId input : program.inputs) {
    const graph::Value& value = program.value(input);
    if (value.role == Role::kBatch) {
      batch.push_back(fmt::format("\n{{\"name\":{},\"dtype\":\"{}\",\"shape\":[{}]}}", json_string(value.name),
                                  dtype_name(value.dtype), fmt::join(value.shape, ",")));
    }
  }
  std::vector<std::string> operators;
  for (const auto& [op, count] : summary.operators) {
    operators.push_back(fmt::format("\n{}:{}", json_string(op), count));
  }
  std::vector<std::string> modules;
  for (const ModuleSummary& module : summary.modules) {
    modules.push_back(
        fmt::format("\n{{\"path\":{},\"depth\":{},\"parameters\":{},\"nodes\":{},\"floating_point_operations\":{}}}",
                    json_string(module.path), module.depth, module.parameters, module.nodes,
                    phases_json(module.floating_point_operations)));
  }
  std::vector<std::string> live;
  for (const memory::LiveValue& value : memory.live_at_peak) {
    live.push_back(
        fmt::format("\n{{\"value\":{},\"bytes\":{}}}", json_string(prepared.value(value.value).name), value.bytes));
  }
  const auto list = [](const std::vector<std::string>& entries) {
    return fmt::format("{}{}", fmt::join(entries, ","), entries.empty() ? "" : "\n");
  };
  print_output("{{\n\"name\":{},\n\"kind\":\"{}\",\n\"producer\":{},\n\"first_step\":{},\n", json_string(program.name),
               graph::kind_name(program.kind), json_string(program.producer), program.first_step);
  print_output("\"parameters\":{},\n\"trainable_parameters\":{},\n\"inputs\":{{{}}},\n\"batch\":[{}],\n",
               summary.parameters, summary.trainable_parameters, fmt::join(inputs, ","), list(batch));
  print_output("\"nodes\":{},\n\"floating_point_operations\":{},\n\"result_bytes\":{},\n", phases_json(summary.nodes),
               phases_json(summary.floating_point_operations), summary.result_bytes);
  print_output("\"operators\":{{{}}},\n\"modules\":[{}],\n", list(operators), list(modules));
  print_output(
      "\"memory\":{{\"peak_bytes\":{},\"state_bytes\":{},\"arena_bytes\":{},\"live_bytes\":{},\"peak_node\":{},\"live_"
      "at_peak\":[{}]}}\n}}\n",
      memory.peak_bytes, memory.state_bytes, memory.arena_bytes, memory.live_bytes,
      memory.peak_node == graph::kNone ? "null" : json_string(prepared.node(memory.peak_node).name), list(live));
}

Result<Program> read_shown(const Arguments& arguments) {
  if (arguments.worker) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    return lowering::read_worker(arguments.path, static_cast<int>(std::min(*arguments.worker, kMost)));
  }
  Result<Program> program = graph::read_program(arguments.path, arguments.program);
  if (!program && program.error().code == ErrorCode::kNotFound && arguments.program == "forward" &&
      std::filesystem::is_directory(arguments.path)) {
    program.error().message += "; the step it was captured from gives no forward function";
  }
  return program;
}

Result<int> run_show(const Arguments& arguments) {
  if (partition::is_plan(arguments.path)) {
    if (arguments.graph || arguments.memory || arguments.depth_given) {
      return invalid_input(arguments.path.string() +
                           ": is a plan, of which --graph, --memory and --depth show nothing; they are for programs");
    }
    ShowPlanArguments of_plan;
    of_plan.plan = arguments.path;
    if (!arguments.of.empty()) of_plan.program = arguments.of;
    of_plan.worker = arguments.worker;
    of_plan.compare = !arguments.alone;
    of_plan.json = arguments.json;
    return show_plan(of_plan);
  }
  if (arguments.alone || !arguments.of.empty()) {
    return invalid_input(arguments.path.string() + ": is no plan; --alone and --of are for plans");
  }
  const bool lowered = is_lowered(arguments.path);
  if (arguments.worker && !lowered) {
    return invalid_input(arguments.path.string() +
                         ": is no plan and no lowered program; --worker is for those, as NAME.plan or NAME.lowered");
  }
  if (lowered && (arguments.expanded || arguments.program != "program")) {
    return invalid_input(arguments.path.string() +
                         ": is a lowered program; --expanded and --program are for what was captured");
  }
  if (lowered && !arguments.worker) {
    if (arguments.graph || arguments.memory || arguments.depth_given) {
      return invalid_input(arguments.path.string() +
                           ": holds a program for each worker; say which with --worker, as --worker 0");
    }
    return show_lowered(arguments.path, arguments.json);
  }
  const Result<Program> program = read_shown(arguments);
  if (!program) {
    return tl::unexpected<Error>(program.error());
  }
  if (arguments.expanded) {
    TESSER_ASSIGN_OR_RETURN(const Program expanded, partition::expand(*program));
    if (!arguments.output.empty()) {
      TESSER_RETURN_IF_ERROR(write_output_file(arguments.output, graph::program_file_text(expanded)));
    } else {
      print_output("{}", graph::print(expanded));
    }
    return 0;
  }
  if (arguments.graph) {
    print_output("{}",
                 graph::print(arguments.prepared ? runtime::prepare(*program, ExecutorOptions().fuse) : *program));
    return 0;
  }
  const Summary summary = graph::summarize(*program, arguments.json && !arguments.depth_given ? -1 : arguments.depth);
  const Program prepared = runtime::prepare(*program, ExecutorOptions().fuse);  // what a run has in memory
  const MemoryPrediction memory = runtime::predict_step_memory(prepared);
  if (arguments.json) {
    print_json(*program, prepared, summary, memory);
    return 0;
  }
  print_totals(arguments, *program, summary, memory);
  if (arguments.memory) {
    print_memory(prepared, memory);
  } else {
    print_modules(summary.modules, program->kind == graph::Kind::kStep);
    print_operators(summary);
  }
  return 0;
}

}  // namespace

void add_show(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("show", "Print what a program is made of, what a plan does with it, or a worker's program");
  const auto arguments = std::make_shared<Arguments>();
  command
      ->add_option(
          "program_path", arguments->path,
          "Program directory NAME.tesser, one of its JSON files, a plan NAME.plan, or programs of workers NAME.lowered")
      ->required();
  command->add_option("--program", arguments->program, "Which of its programs: program (the step) or forward")
      ->check(CLI::IsMember({"program", "forward"}));
  const CLI::Option* const depth =
      command->add_option("--depth", arguments->depth, "List modules down to this depth (3)")
          ->check(CLI::NonNegativeNumber);
  CLI::Option* const graph =
      command->add_flag("--graph", arguments->graph, "Print every input, operator and output, one a line");
  CLI::Option* const prepared =
      command
          ->add_flag("--prepared", arguments->prepared,
                     "With --graph: the operators as a run executes them, fused and in their order")
          ->needs(graph);
  CLI::Option* const expanded =
      command
          ->add_flag("--expanded", arguments->expanded,
                     "With --graph: the operators as planning cuts them, means, losses and norms taken apart")
          ->needs(graph)
          ->excludes(prepared);
  command
      ->add_option("-o,--output", arguments->output,
                   "With --expanded: write it as a program (JSON) to this file instead of printing it")
      ->needs(expanded);
  CLI::Option* const memory =
      command->add_flag("--memory", arguments->memory, "Print what is live where memory is fullest");
  CLI::Option* const json = command->add_flag("--json", arguments->json, "Print the summary as JSON");
  graph->excludes(memory)->excludes(json);
  memory->excludes(json);
  command->add_option("--of", arguments->of, "Of a plan: the program, if it is not where the plan says");
  command
      ->add_option("--worker", arguments->worker,
                   "Of a plan: what this worker has and computes; of NAME.lowered: its program")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--alone", arguments->alone, "Of a plan: do not compare it with plans of the other presets");
  command->footer(kExamples);
  command->callback([arguments, depth, &action] {
    arguments->depth_given = depth->count() > 0;
    action = [arguments] { return run_show(*arguments); };
  });
}

}  // namespace tesser::cli
