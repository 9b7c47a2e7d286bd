// `tesser tdl check`: descriptions of operators against the kernels.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "graph/read.h"
#include "graph/verify.h"
#include "partition/expand.h"
#include "runtime/description_check.h"
#include "tdl/catalogue.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser tdl check                                      every description shipped with tesser
  tesser tdl check --operator aten::convolution
  tesser tdl check my.tdl                               descriptions of your own
  tesser tdl check --program model.tesser               every node of a program at its shapes)";

struct Arguments {
  std::string file;
  std::vector<std::string> operators;
  std::string program;
  bool verbose = false;
  runtime::DescriptionCheckOptions options;
};

void print_row(const runtime::DescriptionCheck& check) {
  print_output("{:60} {:6} {:10} {:8}\n", check.op, check.calls, check.strategies, check.parts);
}

void print_heads() { print_output("{:60} {:>6} {:>10} {:>8}\n", "operator", "calls", "strategies", "parts"); }

// What was checked, and what is wrong. The exit code.
int report(const std::vector<runtime::DescriptionCheck>& checks, bool verbose) {
  if (verbose) {
    print_heads();
  }
  std::int64_t calls = 0;
  std::int64_t parts = 0;
  int wrong = 0;
  for (const runtime::DescriptionCheck& check : checks) {
    if (verbose) {
      print_row(check);
    }
    calls += check.calls;
    parts += check.parts;
    if (!check.failure.empty()) {
      ++wrong;
      print_output("{} is described wrongly\n  {}\n", check.op, check.failure);
    }
  }
  print_output("{} descriptions, {} calls in {} parts: {}\n", checks.size(), calls, parts,
               wrong == 0 ? std::string("all agree with the kernels")
                          : fmt::format("{} {} wrong", wrong, wrong == 1 ? "is" : "are"));
  return wrong == 0 ? 0 : 1;
}

Result<int> check_one_program(const tdl::Catalogue& catalogue, const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const graph::Program program, graph::read_program(arguments.program));
  TESSER_RETURN_IF_ERROR(graph::verify(program));
  TESSER_ASSIGN_OR_RETURN(const graph::Program expanded, partition::expand(program));
  std::vector<std::string> undescribed;
  TESSER_ASSIGN_OR_RETURN(const std::vector<runtime::DescriptionCheck> checks,
                          runtime::check_program(catalogue, expanded, arguments.options, &undescribed));
  for (const std::string& op : undescribed) {
    print_output("{} is not described: every worker would compute all of it\n", op);
  }
  return report(checks, arguments.verbose);
}

Result<int> run_check(const Arguments& arguments) {
  tdl::Catalogue catalogue = tdl::Catalogue::shipped();
  std::vector<std::string> operators = arguments.operators;
  if (!arguments.file.empty()) {
    tdl::Catalogue own;
    TESSER_RETURN_IF_ERROR(own.add_file(arguments.file));
    TESSER_RETURN_IF_ERROR(catalogue.add_file(arguments.file));
    if (operators.empty()) {
      operators = own.operators();
    }
  }
  if (!arguments.program.empty()) {
    return check_one_program(catalogue, arguments);
  }
  if (operators.empty()) {
    operators = catalogue.operators();
  }
  std::vector<runtime::DescriptionCheck> checks;
  for (const std::string& op : operators) {
    auto check = runtime::check_description(catalogue, op, arguments.options);
    if (!check) {
      return tl::unexpected<Error>(check.error());
    }
    checks.push_back(std::move(*check));
  }
  return report(checks, arguments.verbose);
}

}  // namespace

void add_tdl_check(CLI::App& tdl, Action& action) {
  CLI::App* command = tdl.add_subcommand("check", "Check descriptions of operators against the kernels");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("file", arguments->file, "Descriptions to check (default: those shipped with tesser)");
  command->add_option("--operator", arguments->operators, "Check the description of this operator (may be repeated)");
  command->add_option("--program", arguments->program,
                      "Check every node of this program, expanded, with its own shapes and attributes");
  command->add_option("--seed", arguments->options.seed, "Seed of the random calls")->capture_default_str();
  command->add_option("--cases", arguments->options.cases, "Random calls of each check clause")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_flag("-v,--verbose", arguments->verbose, "One line an operator");
  command->footer(kExamples);
  command->callback([arguments, &action] { action = [arguments] { return run_check(*arguments); }; });
}

}  // namespace tesser::cli
