#include "cli/show_plan.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json.h"
#include "cli/output.h"
#include "partition/format.h"
#include "partition/search.h"
#include "partition/summary.h"

namespace tesser::cli {
namespace {

using partition::OpenedPlan;
using partition::Plan;
using partition::PlanCost;

constexpr std::size_t kRowsShown = 60;
constexpr std::size_t kOperatorsShown = 25;  // most moved, then most frequent
constexpr std::size_t kTransfersShown = 15;

void print_line(std::string_view key, const std::string& text) { print_output("  {:<11} {}\n", key, text); }

std::string seconds_text(double seconds) {
  return seconds >= 1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.3g} ms", seconds * 1e3);
}

// Rows of equal length, the first being the head; every column but those of `left` is aligned to the right.
void print_table(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& left,
                 std::size_t most = kRowsShown) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  const std::size_t shown = std::min(rows.size(), most + 1);
  for (std::size_t place = 0; place < shown; ++place) {
    std::string line;
    for (std::size_t column = 0; column < widths.size(); ++column) {
      const bool is_left = std::find(left.begin(), left.end(), column) != left.end();
      line += is_left ? fmt::format("{:<{}}  ", rows[place][column], widths[column])
                      : fmt::format("{:>{}}  ", rows[place][column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    print_output("{}\n", line);
  }
  if (rows.size() > shown) print_output("... and {} more\n", rows.size() - shown);
}

std::string many(const std::string& name, std::int64_t count) {
  return count == 1 ? name : fmt::format("{} (x{})", name, count);
}

std::string share(std::int64_t bytes, std::int64_t total) {
  return total == 0 ? "" : fmt::format("{:.1f}%", 100.0 * static_cast<double>(bytes) / static_cast<double>(total));
}

void print_totals(const std::filesystem::path& path, const OpenedPlan& opened, const PlanCost& cost) {
  const Plan& plan = opened.record.plan;
  print_output("{}: plan of {} for {} worker{}, preset {}\n", path.string(), plan.program, plan.workers(),
               plan.workers() == 1 ? "" : "s", plan.preset);
  for (std::size_t level = 0; level < plan.levels.size(); ++level) {
    const std::int64_t crossing = cost.traffic.level_bytes[level];
    const std::string& link = plan.levels[level].link;
    print_line(level == 0 ? "levels" : "", fmt::format("{} groups{}: {} cross a step", plan.levels[level].parts,
                                                       link.empty() ? "" : " over " + link, bytes_text(crossing)));
  }
  const auto& received = cost.traffic.worker_bytes;
  print_line("moved",
             fmt::format("{} a step; a worker receives {} at most", bytes_text(cost.traffic.total),
                         bytes_text(received.empty() ? 0 : *std::max_element(received.begin(), received.end()))));
  print_line("memory", fmt::format("{} for worker {}, which needs most: {} state and batch, {} with results at rest",
                                   bytes_text(cost.memory.peak_bytes), cost.memory.worker,
                                   bytes_text(cost.memory.state_bytes), bytes_text(cost.memory.at_rest_bytes)));
  if (cost.memory.peak_node != graph::kNone) {
    const graph::Node& node = opened.expanded.node(cost.memory.peak_node);
    print_line("", fmt::format("fullest at {} ({})", node.name, node.op));
  }
  if (opened.record.memory_bytes) print_line("bound", bytes_text(*opened.record.memory_bytes));
  print_line("time", fmt::format("{} a step: {} computing, {} receiving", seconds_text(cost.time.total()),
                                 seconds_text(cost.time.computing), seconds_text(cost.time.receiving)));
}

void print_layouts(const OpenedPlan& opened, const PlanCost& cost) {
  std::vector<std::vector<std::string>> rows = {{"parameter or batch", "shape", "cut", "a worker has"}};
  for (const partition::TensorRow& row : partition::parameter_rows(opened.expanded, opened.record.plan)) {
    rows.push_back(
        {many(row.name, row.count), type_text(row.dtype, row.shape), row.layout, bytes_text(row.worker_bytes)});
  }
  print_output("\n");
  print_table(rows, {0, 1, 2});
  rows = {{"module", "result", "cut", "forward", "backward", "update"}};
  for (const partition::ModuleRow& row : partition::module_rows(opened.expanded, opened.record.plan, cost.traffic)) {
    rows.push_back({many(row.module.empty() ? "(all)" : row.module, row.modules),
                    row.layout.empty() ? "" : shape_text(row.shape), row.layout, bytes_text(row.forward_bytes),
                    bytes_text(row.backward_bytes), bytes_text(row.other_bytes)});
  }
  print_output("\nwhat modules compute, and the bytes that move for it\n");
  print_table(rows, {0, 1, 2});
  rows = {{"operator", "cut along", "nodes", "moved"}};
  for (const partition::OperatorRow& row :
       partition::operator_rows(opened.expanded, opened.semantics, opened.record.plan, cost.traffic)) {
    rows.push_back({row.op, row.cut, std::to_string(row.nodes), bytes_text(row.bytes)});
  }
  print_output("\n");
  print_table(rows, {0, 1}, kOperatorsShown);
}

void print_transfers(const OpenedPlan& opened, const PlanCost& cost) {
  const std::vector<partition::TransferRow> transfers =
      partition::transfer_rows(opened.expanded, opened.semantics, opened.record.plan, cost.traffic);
  if (transfers.empty()) return;
  print_output("\nthe most expensive transfers\n");
  std::int64_t rest = 0;
  for (std::size_t place = 0; place < transfers.size(); ++place) {
    const partition::TransferRow& row = transfers[place];
    if (place >= kTransfersShown) {
      rest += row.bytes;
      continue;
    }
    print_output("{:>12} {:>6}  {}\n", bytes_text(row.bytes), share(row.bytes, cost.traffic.total),
                 many(row.what, row.count));
  }
  if (rest > 0) {
    print_output("{:>12} {:>6}  {} more\n", bytes_text(rest), share(rest, cost.traffic.total),
                 transfers.size() - kTransfersShown);
  }
}

struct Compared {
  std::string preset;
  std::string failure;  // why there is no such plan; empty if there is
  PlanCost cost;
};

std::vector<Compared> comparison(const OpenedPlan& opened) {
  std::vector<Compared> all;
  for (const partition::Preset preset : partition::presets()) {
    Compared& one = all.emplace_back();
    one.preset = partition::preset_name(preset);
    partition::SearchOptions options;
    options.workers = static_cast<int>(opened.record.plan.workers());
    options.preset = preset;
    options.topology = opened.record.topology;
    if (preset == partition::Preset::kDefault) options.memory_bytes = opened.record.memory_bytes;
    const Result<Plan> plan = partition::search(opened.expanded, opened.semantics, options);
    if (plan) {
      one.cost = partition::plan_cost(opened.expanded, opened.semantics, *plan, options.topology);
    } else {
      one.failure = plan.error().message.substr(0, plan.error().message.find('\n'));
    }
  }
  return all;
}

void print_comparison(const OpenedPlan& opened, const PlanCost& own) {
  std::vector<std::vector<std::string>> rows = {{"preset", "moved", "state", "peak", "time"}};
  const auto add = [&](const std::string& name, const PlanCost& cost) {
    rows.push_back({name, bytes_text(cost.traffic.total), bytes_text(cost.memory.state_bytes),
                    bytes_text(cost.memory.peak_bytes), seconds_text(cost.time.total())});
  };
  add("this plan", own);
  std::vector<std::string> failures;
  for (const Compared& other : comparison(opened)) {
    if (other.failure.empty()) {
      add(other.preset, other.cost);
    } else {
      failures.push_back(fmt::format("{}: {}", other.preset, other.failure));
    }
  }
  print_output("\ncompared with the plans of every preset, a step and a worker\n");
  print_table(rows, {0});
  for (const std::string& failure : failures) print_output("no plan by {}\n", failure);
}

std::string cost_json(const PlanCost& cost) {
  return fmt::format(
      "\"bytes_per_step\":{},\"level_bytes\":[{}],\"worker_bytes\":[{}],\"state_bytes\":{},\"at_rest_bytes\":{},"
      "\"peak_bytes\":{},\"seconds\":{},\"computing_seconds\":{},\"receiving_seconds\":{}",
      cost.traffic.total, fmt::join(cost.traffic.level_bytes, ","), fmt::join(cost.traffic.worker_bytes, ","),
      cost.memory.state_bytes, cost.memory.at_rest_bytes, cost.memory.peak_bytes, json_float(cost.time.total()),
      json_float(cost.time.computing), json_float(cost.time.receiving));
}

void print_json(const OpenedPlan& opened, const PlanCost& cost, bool compare) {
  const Plan& plan = opened.record.plan;
  const auto list = [](const std::vector<std::string>& entries) {
    return fmt::format("[{}{}]", fmt::join(entries, ","), entries.empty() ? "" : "\n");
  };
  std::vector<std::string> levels;
  for (const partition::Level& level : plan.levels) {
    levels.push_back(fmt::format("{{\"parts\":{},\"link\":{}}}", level.parts, json_string(level.link)));
  }
  std::vector<std::string> transfers;
  for (const partition::TransferRow& row :
       partition::transfer_rows(opened.expanded, opened.semantics, plan, cost.traffic)) {
    transfers.push_back(
        fmt::format("\n{{\"what\":{},\"count\":{},\"bytes\":{}}}", json_string(row.what), row.count, row.bytes));
  }
  std::vector<std::string> tensors;
  for (const partition::TensorRow& row : partition::parameter_rows(opened.expanded, plan)) {
    tensors.push_back(fmt::format("\n{{\"name\":{},\"count\":{},\"shape\":[{}],\"cut\":{},\"worker_bytes\":{}}}",
                                  json_string(row.name), row.count, fmt::join(row.shape, ","), json_string(row.layout),
                                  row.worker_bytes));
  }
  std::vector<std::string> others;
  for (const Compared& other : compare ? comparison(opened) : std::vector<Compared>{}) {
    others.push_back(
        fmt::format("\n{{\"preset\":{},{}}}", json_string(other.preset),
                    other.failure.empty() ? cost_json(other.cost) : "\"failure\":" + json_string(other.failure)));
  }
  print_output("{{\n\"program\":{},\n\"program_hash\":{},\n\"preset\":{},\n\"workers\":{},\n\"levels\":[{}],\n{},\n",
               json_string(plan.program), json_string(plan.program_hash), json_string(plan.preset), plan.workers(),
               fmt::join(levels, ","), cost_json(cost));
  print_output("\"tensors\":{},\n\"transfers\":{},\n\"comparison\":{}\n}}\n", list(tensors), list(transfers),
               list(others));
}

Result<int> print_worker(const OpenedPlan& opened, std::int64_t worker) {
  const Plan& plan = opened.record.plan;
  if (worker < 0 || worker >= plan.workers()) {
    return invalid_input(fmt::format("--worker {}: the plan has workers 0 to {}", worker, plan.workers() - 1));
  }
  const std::vector<int> digits = partition::worker_digits(plan.levels, worker);
  print_output(
      "worker {} of {}, part {} of levels {}\n\n", worker, plan.workers(), fmt::join(digits, "."),
      fmt::join(opened.record.plan.levels | std::views::transform([](const auto& l) { return l.parts; }), " x "));
  std::vector<std::vector<std::string>> rows = {{"value", "whole", "has", "bytes"}};
  for (std::size_t index = 0; index < opened.expanded.values.size(); ++index) {
    const graph::Value& value = opened.expanded.values[index];
    const tdl::Region region =
        partition::owned_region(plan, opened.expanded, static_cast<graph::ValueId>(index), digits);
    rows.push_back({value.name, type_text(value.dtype, value.shape),
                    tdl::volume(region) == 0 ? "nothing" : tdl::region_text(region),
                    std::to_string(tdl::volume(region) * static_cast<std::int64_t>(element_size(value.dtype)))});
  }
  for (const auto& row : rows) print_output("{:<40} {:<28} {:<40} {:>12}\n", row[0], row[1], row[2], row[3]);
  print_output("\n{:<40} {:<44} computes\n", "node", "operator");
  for (std::size_t index = 0; index < opened.expanded.nodes.size(); ++index) {
    const graph::Node& node = opened.expanded.nodes[index];
    const tdl::Box box =
        partition::worker_box(plan, static_cast<graph::NodeId>(index), opened.semantics[index], digits);
    std::vector<std::string> variables;
    bool nothing = false;
    for (std::size_t variable = 0; variable < box.size(); ++variable) {
      nothing = nothing || box[variable].empty();
      if (box[variable] == opened.semantics[index].whole_box()[variable]) continue;
      variables.push_back(fmt::format("{} {}:{}", opened.semantics[index].variables()[variable].name,
                                      box[variable].begin, box[variable].end));
    }
    print_output("{:<40} {:<44} {}\n", node.name, node.op,
                 nothing             ? "nothing"
                 : variables.empty() ? "all of it"
                                     : fmt::format("{}", fmt::join(variables, ", ")));
  }
  return 0;
}

}  // namespace

Result<int> show_plan(const ShowPlanArguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const OpenedPlan opened, partition::open_plan(arguments.plan, arguments.program));
  if (arguments.worker) return print_worker(opened, *arguments.worker);
  const PlanCost cost =
      partition::plan_cost(opened.expanded, opened.semantics, opened.record.plan, opened.record.topology);
  if (arguments.json) {
    print_json(opened, cost, arguments.compare);
    return 0;
  }
  print_totals(arguments.plan, opened, cost);
  print_layouts(opened, cost);
  print_transfers(opened, cost);
  const std::vector<partition::Undescribed> undescribed =
      partition::undescribed_operators(opened.expanded, opened.semantics);
  if (!undescribed.empty()) print_output("\nwithout description, so all of it on every worker\n");
  for (const partition::Undescribed& it : undescribed) {
    print_output("  {} ({} node{}){}\n", it.op, it.nodes, it.nodes == 1 ? "" : "s",
                 it.misfit.empty() ? "" : ": " + it.misfit);
  }
  if (arguments.compare) print_comparison(opened, cost);
  return 0;
}

}  // namespace tesser::cli
