// `tesser tdl explain` and `tesser tdl list`: what descriptions say.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/nearest_name.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "graph/print.h"
#include "graph/read.h"
#include "partition/expand.h"
#include "tdl/catalogue.h"
#include "tdl/description.h"
#include "tdl/explain.h"
#include "tdl/semantics.h"

namespace tesser::cli {
namespace {

using tdl::Catalogue;
using tdl::Description;
using tdl::ExplainedCase;
using tdl::ExplainedCut;
using tdl::ExplainedTensor;
using tdl::Explanation;

constexpr const char* kExplainExamples = R"(
Examples:
  tesser tdl explain aten::convolution                     with symbols for sizes
  tesser tdl explain my::op --tdl my.tdl
  tesser tdl explain convolution_3 --program model.tesser  a node, with its numbers
  tesser tdl explain mm --program model.tesser --parts 3)";

constexpr const char* kListExamples = R"(
Examples:
  tesser tdl list
  tesser tdl list --program model.tesser       the operators of a program, and which are not described)";

struct Arguments {
  std::string name;
  std::vector<std::string> files;
  std::string program;
  int parts = 2;
  bool json = false;
};

Result<Catalogue> catalogue_of(const std::vector<std::string>& files) {
  Catalogue catalogue = Catalogue::shipped();
  for (const std::string& file : files) {
    TESSER_RETURN_IF_ERROR(catalogue.add_file(file));
  }
  return catalogue;
}

Result<graph::Program> expanded(const std::string& path) {
  TESSER_ASSIGN_OR_RETURN(const graph::Program program, graph::read_program(path));
  return partition::expand(program);
}

std::string did_you_mean(const std::string& given, const std::vector<std::string>& names) {
  const auto nearest = nearest_name(given, names);
  return nearest ? fmt::format("; did you mean '{}'?", *nearest) : std::string();
}

// A table whose columns are as wide as their widest cell; the last one is not padded.
class Table {
 public:
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()), 0);
      for (std::size_t c = 0; c < row.size(); ++c) {
        widths[c] = std::max(widths[c], row[c].size());
      }
    }
    for (const auto& row : rows_) {
      std::string line = " ";
      for (std::size_t c = 0; c < row.size(); ++c) {
        line += fmt::format(" {:{}} ", row[c], widths[c]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      print_output("{}\n", line);
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

void print_case(const ExplainedCase& explained) {
  Table table;
  table.add({"cut", "extent", "", "tensor", "together", "first of two parts"});
  for (const ExplainedCut& cut : explained.cuts) {
    bool first = true;
    for (const ExplainedTensor& tensor : cut.tensors) {
      table.add({first ? cut.variable : "", first ? cut.extent : "", tensor.made ? "makes" : "reads", tensor.name,
                 tensor.together, tensor.region});
      first = false;
    }
    if (!cut.note.empty()) {
      table.add({"", "", "", "", cut.note});
    }
  }
  table.print();
  for (const tdl::ExplainedWhole& whole : explained.wholes) {
    print_output("  {} is not cut: {}\n", whole.variable, whole.reason);
  }
}

void print_explanation(const Explanation& explanation) {
  print_output("{}\n", explanation.place);
  for (std::size_t l = 0; l < explanation.lines.size(); ++l) {
    print_output("{}{}\n", l == 0 ? "  " : "      ", explanation.lines[l]);
  }
  if (explanation.elementwise) {
    print_output(
        "\n  Every dimension of the results can be cut; parts are concatenated. Of each argument a part reads the\n"
        "  same places, and a dimension of size 1 whole.\n");
  }
  for (const ExplainedCase& explained : explanation.cases) {
    if (explanation.cases.size() > 1) {
      std::string conditions;
      for (const std::string& condition : explained.conditions) {
        if (conditions.find(condition) == std::string::npos) {
          conditions += (conditions.empty() ? "if " : " and ") + condition;
        }
      }
      print_output("\n{}:\n", conditions.empty() ? "otherwise" : conditions);
    } else {
      print_output("\n");
    }
    print_case(explained);
  }
}

std::string json_of(const Explanation& explanation) {
  const auto list = [](const auto& items, const auto& text) {
    std::string all;
    for (const auto& item : items) {
      all += (all.empty() ? "" : ",") + text(item);
    }
    return "[" + all + "]";
  };
  const auto tensor = [](const ExplainedTensor& t) {
    return fmt::format(R"({{"tensor":{},"made":{},"region":{},"together":{}}})", json_string(t.name), t.made,
                       json_string(t.region), json_string(t.together));
  };
  const auto cut = [&](const ExplainedCut& c) {
    return fmt::format(R"({{"variable":{},"extent":{},"note":{},"tensors":{}}})", json_string(c.variable),
                       json_string(c.extent), json_string(c.note), list(c.tensors, tensor));
  };
  const auto whole = [](const tdl::ExplainedWhole& w) {
    return fmt::format(R"({{"variable":{},"reason":{}}})", json_string(w.variable), json_string(w.reason));
  };
  const auto one_case = [&](const ExplainedCase& c) {
    return fmt::format(R"({{"conditions":{},"cuts":{},"not_cut":{}}})", list(c.conditions, json_string),
                       list(c.cuts, cut), list(c.wholes, whole));
  };
  return fmt::format(R"({{"operator":{},"place":{},"elementwise":{},"lines":{},"cases":{}}})",
                     json_string(explanation.op), json_string(explanation.place), explanation.elementwise,
                     list(explanation.lines, json_string), list(explanation.cases, one_case));
}

Result<int> explain_operator(const Catalogue& catalogue, const Arguments& arguments) {
  const Description* const description = catalogue.find(arguments.name);
  if (description == nullptr) {
    return not_found(fmt::format("no description of an operator '{}'{}", arguments.name,
                                 did_you_mean(arguments.name, catalogue.operators())));
  }
  const Explanation explanation = tdl::explain(*description);
  if (arguments.json) {
    print_output("{}\n", json_of(explanation));
  } else {
    print_explanation(explanation);
  }
  return 0;
}

// One row of a node's table: a tensor under one cut.
struct NodeRow {
  std::string tensor;
  bool made = false;
  std::vector<std::string> parts;
  std::string together;
};

std::vector<NodeRow> rows_of(const graph::Program& program, const graph::Node& node,
                             const tdl::NodeSemantics& semantics, const std::vector<tdl::LocalCall>& calls,
                             const tdl::Strategy& strategy) {
  std::vector<NodeRow> rows;
  const std::vector<graph::ValueId> read = graph::values_read(node);
  for (std::size_t o = 0; o < read.size(); ++o) {
    NodeRow row{"%" + program.value(read[o]).name, false, {}, {}};
    for (const tdl::LocalCall& call : calls) {
      const tdl::LocalOperand& operand = call.operands[o];
      row.parts.push_back(call.empty                        ? "nothing"
                          : operand.zero                    ? "zeros"
                          : operand.given == operand.region ? region_text(operand.region)
                                                            : region_text(operand.given) + " padded");
    }
    rows.push_back(std::move(row));
  }
  for (std::size_t r = 0; r < node.outputs.size(); ++r) {
    if (node.outputs[r] == graph::kNone) {
      continue;
    }
    NodeRow row{"%" + program.value(node.outputs[r]).name, true, {}, std::string(outcome_name(strategy.outcomes[r]))};
    for (const tdl::LocalCall& call : calls) {
      row.parts.push_back(call.empty ? "nothing" : region_text(call.results[r].region));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string json_of(const std::string& variable, std::int64_t extent, const std::vector<NodeRow>& rows) {
  std::string tensors;
  for (const NodeRow& row : rows) {
    std::string parts;
    for (const std::string& part : row.parts) {
      parts += (parts.empty() ? "" : ",") + json_string(part);
    }
    tensors += fmt::format(R"({}{{"tensor":{},"made":{},"parts":[{}],"together":{}}})", tensors.empty() ? "" : ",",
                           json_string(row.tensor), row.made, parts, json_string(row.together));
  }
  return fmt::format(R"({{"variable":{},"extent":{},"tensors":[{}]}})", json_string(variable), extent, tensors);
}

Result<int> explain_node(const Catalogue& catalogue, const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const graph::Program program, expanded(arguments.program));
  std::vector<std::string> names;
  const graph::Node* node = nullptr;
  for (const graph::Node& candidate : program.nodes) {
    names.push_back(candidate.name);
    node = candidate.name == arguments.name ? &candidate : node;
  }
  if (node == nullptr) {
    return not_found(
        fmt::format("{}: no node '{}'{}", arguments.program, arguments.name, did_you_mean(arguments.name, names)));
  }
  const tdl::NodeSemantics semantics = tdl::analyze(program, *node, catalogue);
  Table table;
  std::vector<std::string> head = {"cut", "extent", "", "tensor"};
  for (int part = 0; part < arguments.parts; ++part) {
    head.push_back(fmt::format("part {} of {}", part, arguments.parts));
  }
  head.emplace_back("together");
  table.add(std::move(head));
  std::string json;
  for (const tdl::Strategy& strategy : semantics.strategies()) {
    const auto v = static_cast<std::size_t>(strategy.variable);
    const tdl::Variable& variable = semantics.variables()[v];
    std::vector<tdl::LocalCall> calls;
    for (int part = 0; part < arguments.parts; ++part) {
      tdl::Box box = semantics.whole_box();
      box[v] = tdl::part_of(box[v], arguments.parts, part);
      TESSER_ASSIGN_OR_RETURN(tdl::LocalCall call, tdl::localize(program, *node, semantics, catalogue, box));
      calls.push_back(std::move(call));
    }
    const std::vector<NodeRow> rows = rows_of(program, *node, semantics, calls, strategy);
    json += (json.empty() ? "" : ",") + json_of(variable.name, variable.extent, rows);
    for (const NodeRow& row : rows) {
      const bool first = &row == rows.data();
      std::vector<std::string> cells = {first ? variable.name : "", first ? std::to_string(variable.extent) : "",
                                        row.made ? "makes" : "reads", row.tensor};
      cells.insert(cells.end(), row.parts.begin(), row.parts.end());
      cells.push_back(row.together);
      table.add(std::move(cells));
    }
  }
  const Description* const description = semantics.described() ? catalogue.find(node->op) : nullptr;
  const std::string place =
      description == nullptr ? "" : fmt::format("{}:{}", description->file, description->position.line);
  if (arguments.json) {
    print_output(R"({{"node":{},"operator":{},"described":{},"place":{},"cuts":[{}]}})"
                 "\n",
                 json_string(node->name), json_string(node->op), semantics.described(), json_string(place), json);
    return 0;
  }
  print_output("{}\n", graph::print_node(program, *node));
  if (!semantics.described()) {
    print_output("  {} is not described for such a call: every worker computes all of it\n", node->op);
    if (!semantics.misfit().empty()) {
      print_output("  {}\n", semantics.misfit());
    }
    return 0;
  }
  print_output("  described in {}\n\n", place);
  if (semantics.strategies().empty()) {
    print_output("  nothing of it can be cut\n");
    return 0;
  }
  table.print();
  return 0;
}

Result<int> run_explain(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const Catalogue catalogue, catalogue_of(arguments.files));
  return arguments.program.empty() ? explain_operator(catalogue, arguments) : explain_node(catalogue, arguments);
}

// The operators of a program and how often each occurs, or of the catalogue.
Result<int> run_list(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const Catalogue catalogue, catalogue_of(arguments.files));
  struct Row {
    std::string op;
    bool described = true;
    std::int64_t nodes = 0;
  };
  std::vector<Row> rows;
  const bool of_program = !arguments.program.empty();
  std::int64_t nodes = 0;
  if (of_program) {
    TESSER_ASSIGN_OR_RETURN(const graph::Program program, expanded(arguments.program));
    // A call that no equation covers is listed apart from others of its operator.
    std::map<std::pair<std::string, bool>, std::int64_t> counts;
    for (const graph::Node& node : program.nodes) {
      ++counts[{node.op, tdl::analyze(program, node, catalogue).described()}];
      ++nodes;
    }
    for (const auto& [key, count] : counts) {
      rows.push_back({key.first, key.second, count});
    }
  } else {
    for (const std::string& op : catalogue.operators()) {
      rows.push_back({op});
    }
  }
  Table table;
  std::string json;
  std::int64_t missing = 0;
  for (const Row& row : rows) {
    missing += row.described ? 0 : row.nodes;
    const Description* const description = row.described ? catalogue.find(row.op) : nullptr;
    const std::string place =
        description == nullptr ? "" : fmt::format("{}:{}", description->file, description->position.line);
    json += fmt::format(R"({}{{"operator":{},"nodes":{},"described":{},"place":{}}})", json.empty() ? "" : ",",
                        json_string(row.op), row.nodes, row.described, json_string(place));
    std::vector<std::string> cells = {row.op};
    if (of_program) {
      cells.push_back(std::to_string(row.nodes));
    }
    cells.push_back(row.described ? place : "not described: every worker computes all of it");
    table.add(std::move(cells));
  }
  if (arguments.json) {
    print_output("[{}]\n", json);
    return 0;
  }
  table.print();
  if (of_program) {
    print_output("{} of {} nodes are not described\n", missing, nodes);
  }
  return 0;
}

void add_files(CLI::App& command, Arguments& arguments) {
  command.add_option("--tdl", arguments.files, "Add or replace descriptions; may be repeated")->type_name("FILE");
  command.add_option("--program", arguments.program, "A captured program")->type_name("NAME.tesser");
  command.add_flag("--json", arguments.json, "Print JSON");
}

}  // namespace

void add_tdl_explain(CLI::App& tdl, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = tdl.add_subcommand("explain", "How an operator, or a node of a program, can be cut");
  command->footer(kExplainExamples);
  command->add_option("name", arguments->name, "An operator (aten::mm), or with --program a node")
      ->required()
      ->type_name("OPERATOR|NODE");
  add_files(*command, *arguments);
  command->add_option("--parts", arguments->parts, "Of a node: into how many parts it is cut")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->callback([arguments, &action] { action = [arguments] { return run_explain(*arguments); }; });
}

void add_tdl_list(CLI::App& tdl, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = tdl.add_subcommand("list", "Which operators are described, and where");
  command->footer(kListExamples);
  add_files(*command, *arguments);
  command->callback([arguments, &action] { action = [arguments] { return run_list(*arguments); }; });
}

}  // namespace tesser::cli
