#include "cli/show_lowered.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json.h"
#include "cli/output.h"
#include "graph/program.h"
#include "lowering/format.h"
#include "runtime/executor.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/peak_memory.h"

namespace tesser::cli {
namespace {

struct WorkerRow {
  std::size_t nodes = 0;
  std::int64_t sends = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t state_bytes = 0;
  std::int64_t peak_bytes = 0;
};

WorkerRow row_of(const graph::Program& program) {
  WorkerRow row;
  row.nodes = program.nodes.size();
  for (const graph::Node& node : program.nodes) {
    if (node.op == "tesser::send") {
      const graph::Value& value = program.value(graph::value_argument(node, 0));
      const std::int64_t elements = element_count(std::get<std::vector<std::int64_t>>(node.args[4]));
      ++row.sends;
      row.sent_bytes += elements * static_cast<std::int64_t>(element_size(value.dtype));
    }
  }
  const memory::MemoryPrediction memory =
      runtime::predict_step_memory(runtime::prepare(program, runtime::ExecutorOptions().fuse));
  row.state_bytes = memory.state_bytes;
  row.peak_bytes = memory.peak_bytes;
  return row;
}

}  // namespace

bool is_lowered(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path / "lowering.json", error);
}

Result<int> show_lowered(const std::filesystem::path& directory, bool json) {
  TESSER_ASSIGN_OR_RETURN(const lowering::LoweredIndex index, lowering::read_index(directory));
  std::vector<WorkerRow> rows;
  for (int worker = 0; worker < index.workers; ++worker) {
    TESSER_ASSIGN_OR_RETURN(const graph::Program program, lowering::read_worker(directory, worker));
    rows.push_back(row_of(program));
  }
  if (json) {
    std::vector<std::string> entries;
    for (const WorkerRow& row : rows) {
      entries.push_back(
          fmt::format("\n{{\"nodes\":{},\"transfers\":{},\"sent_bytes\":{},\"state_bytes\":{},\"peak_bytes\":{}}}",
                      row.nodes, row.sends, row.sent_bytes, row.state_bytes, row.peak_bytes));
    }
    print_output(
        "{{\n\"name\":{},\n\"program_hash\":{},\n\"plan_hash\":{},\n\"transfers\":{},\n\"bytes\":{},\n\"workers\":[{}\n"
        "]\n}}\n",
        json_string(index.name), json_string(index.program_hash), json_string(index.plan_hash), index.transfers,
        index.bytes, fmt::join(entries, ","));
    return 0;
  }
  print_output("{}: {} lowered for {} worker{}\n  {} transfers of {} a step\n\n", directory.string(), index.name,
               index.workers, index.workers == 1 ? "" : "s", index.transfers, bytes_text(index.bytes));
  print_output("{:>6}  {:>7}  {:>9}  {:>11}  {:>11}  {:>11}\n", "worker", "nodes", "transfers", "sent", "state",
               "peak");
  for (std::size_t worker = 0; worker < rows.size(); ++worker) {
    const WorkerRow& row = rows[worker];
    print_output("{:>6}  {:>7}  {:>9}  {:>11}  {:>11}  {:>11}\n", worker, row.nodes, row.sends,
                 bytes_text(row.sent_bytes), bytes_text(row.state_bytes), bytes_text(row.peak_bytes));
  }
  print_output("\n{} --worker 0 shows the program of worker 0, with --graph every operator\n",
               "tesser show " + directory.string());
  return 0;
}

}  // namespace tesser::cli
