// Draws a plan of a program from all that descriptions and the plan format allow: levels, a layout of each value, a cut
// of each node, in blocks of any size, so that parts are uneven and some are empty. A seed always draws the same plan.
// Run by tests/python/plan/test_random_plans.py and by hand; `tesser train --plan`, `tesser lower` and `tesser show`
// take what it writes.
//
//   random_plan NAME.tesser WORKERS SEED NAME.plan [MY.tdl ...]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "graph/read.h"
#include "partition/expand.h"
#include "partition/format.h"
#include "partition/signature.h"
#include "partition/summary.h"

namespace tesser::partition {
namespace {

namespace fs = std::filesystem;

class Drawer {
 public:
  explicit Drawer(std::uint64_t seed) : generator_(seed) {
    // Some plans replicate much, some little; some cut all alike, some each on its own.
    replicated_values_ = any_of({0.1, 0.3, 0.6});
    replicated_nodes_ = any_of({0.05, 0.2, 0.5});
    blocks_ = any_of({0.0, 0.2, 0.5});
    at_output_ = any_of({0.0, 0.5, 0.9});
  }

  Plan plan(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, int workers) {
    Plan plan;
    plan.preset = "random";
    plan.levels = levels(workers);
    for (const graph::Value& value : program.values) {
      plan.layouts.push_back(layout(value.shape, plan.levels.size()));
    }
    for (std::size_t id = 0; id < program.nodes.size(); ++id) {
      plan.nodes.push_back(cuts(semantics[id], plan.levels.size()));
      lay_out_results(program, program.nodes[id], semantics[id], plan);
    }
    lay_out_optimizer_state(program, plan);
    for (const graph::StateOutput& output : program.state_outputs) {
      plan.layouts[static_cast<std::size_t>(output.value)] = plan.layouts[static_cast<std::size_t>(output.state)];
    }
    return plan;
  }

 private:
  // Where a worker would have state without anything of its parameter, it lies as the parameter does.
  static void lay_out_optimizer_state(const graph::Program& program, Plan& plan) {
    for (const graph::ValueId input : program.inputs) {
      const graph::ValueId parameter = program.value(input).of;
      for (std::int64_t worker = 0; parameter != graph::kNone && worker < plan.workers(); ++worker) {
        const std::vector<int> digits = worker_digits(plan.levels, worker);
        if (tdl::volume(owned_region(plan, program, input, digits)) > 0 &&
            tdl::volume(owned_region(plan, program, parameter, digits)) == 0) {
          plan.layouts[static_cast<std::size_t>(input)] = plan.layouts[static_cast<std::size_t>(parameter)];
        }
      }
    }
  }

  double unit() { return std::uniform_real_distribution<>()(generator_); }
  std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(generator_); }
  double any_of(const std::vector<double>& values) { return values[below(values.size())]; }

  // Factors of the number of workers in any order, several of them together or each alone.
  std::vector<Level> levels(int workers) {
    std::vector<Level> levels;
    for (int left = workers; left > 1;) {
      std::vector<int> factors;
      for (int factor = 2; factor <= left; ++factor) {
        if (left % factor == 0) factors.push_back(factor);
      }
      levels.push_back({factors[below(factors.size())], ""});
      left /= levels.back().parts;
    }
    return levels;
  }

  std::int64_t block(std::int64_t extent) {
    return unit() < blocks_ ? 1 + static_cast<std::int64_t>(below(static_cast<std::size_t>(extent))) : 1;
  }

  std::vector<Cut> layout(const Shape& shape, std::size_t levels) {
    std::vector<Cut> cuts(levels);
    for (Cut& cut : cuts) {
      if (shape.empty() || element_count(shape) == 0 || unit() < replicated_values_) continue;
      const std::size_t axis = below(shape.size());
      cut = {static_cast<int>(axis), block(shape[axis])};
    }
    return cuts;
  }

  std::vector<Cut> cuts(const tdl::NodeSemantics& semantics, std::size_t levels) {
    std::vector<Cut> cuts(levels);
    for (Cut& cut : cuts) {
      if (semantics.strategies().empty() || unit() < replicated_nodes_) continue;
      const tdl::Strategy& strategy = semantics.strategies()[below(semantics.strategies().size())];
      const tdl::Variable& variable = semantics.variables()[static_cast<std::size_t>(strategy.variable)];
      cut = {strategy.variable, block(variable.extent)};
    }
    return cuts;
  }

  // Some results stay where they are made, as found plans have most of them.
  void lay_out_results(const graph::Program& program, const graph::Node& node, const tdl::NodeSemantics& semantics,
                       Plan& plan) {
    const std::vector<Cut>& of_node = plan.nodes.back();
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      const graph::ValueId id = node.outputs[result];
      if (id == graph::kNone || unit() >= at_output_) continue;
      std::vector<Cut>& layout = plan.layouts[static_cast<std::size_t>(id)];
      const auto& index = semantics.result_index(result);
      for (std::size_t level = 0; level < layout.size(); ++level) {
        layout[level] = {};
        for (std::size_t dimension = 0; dimension < program.value(id).shape.size(); ++dimension) {
          const bool same = index[dimension] && index[dimension]->divisor == 1 &&
                            index[dimension]->coefficients.size() == 1 && index[dimension]->constant == 0 &&
                            index[dimension]->coefficients[0] == std::pair<int, std::int64_t>{of_node[level].axis, 1};
          if (same) layout[level] = {static_cast<int>(dimension), of_node[level].granularity};
        }
      }
    }
  }

  std::mt19937_64 generator_;
  double replicated_values_;
  double replicated_nodes_;
  double blocks_;     // how often a cut is in blocks of more than one element
  double at_output_;  // how often a result lies as its node is cut
};

Result<void> run(const std::vector<std::string>& words) {
  tdl::Catalogue catalogue = tdl::Catalogue::shipped();
  PlanRecord record;
  const fs::path output = words[3];
  const auto relative = [&](const fs::path& path) {
    return fs::absolute(path).lexically_relative(fs::absolute(output).parent_path()).generic_string();
  };
  for (std::size_t file = 4; file < words.size(); ++file) {
    TESSER_RETURN_IF_ERROR(catalogue.add_file(words[file]));
    record.descriptions.push_back(relative(words[file]));
  }
  TESSER_ASSIGN_OR_RETURN(const graph::Program captured, graph::read_program(words[0]));
  TESSER_ASSIGN_OR_RETURN(const graph::Program program, expand(captured));
  const std::vector<tdl::NodeSemantics> semantics = analyze_nodes(program, catalogue);
  record.plan = Drawer(std::stoull(words[2])).plan(program, semantics, std::stoi(words[1]));
  record.plan.program = captured.name;
  record.plan.program_hash = program_hash(captured);
  record.program_path = relative(words[0]);
  TESSER_RETURN_IF_ERROR(verify(record.plan, program, semantics));
  record.predicted = prediction(plan_cost(program, semantics, record.plan, record.topology));
  TESSER_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create_output(output));
  return write_plan(record, program, std::move(file));
}

}  // namespace
}  // namespace tesser::partition

int main(int count, char** words) {
  if (count < 5) {
    std::fprintf(stderr, "usage: random_plan NAME.tesser WORKERS SEED NAME.plan [MY.tdl ...]\n");
    return 2;
  }
  if (const tesser::Result<void> done = tesser::partition::run({words + 1, words + count}); !done) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
