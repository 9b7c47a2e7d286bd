#include "partition/coarsen.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_map>

#include "partition/placement.h"

namespace tesser::partition {
namespace {

using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Program;
using graph::ValueId;

class DisjointSets {
 public:
  explicit DisjointSets(std::size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0); }

  int find(int element) {
    while (parent_[index(element)] != element) {
      parent_[index(element)] = parent_[index(parent_[index(element)])];
      element = parent_[index(element)];
    }
    return element;
  }
  // The smaller of both representatives stays one, so that the outcome does not depend on the order.
  void join(int a, int b) {
    a = find(a);
    b = find(b);
    parent_[index(std::max(a, b))] = std::min(a, b);
  }

 private:
  static std::size_t index(int element) { return static_cast<std::size_t>(element); }
  std::vector<int> parent_;
};

// Whether every dimension of `index` is variable number d of the same list, in order: element i of the one is made
// from element i of the other.
bool same_index(const std::vector<std::optional<tdl::AffineIndex>>& a,
                const std::vector<std::optional<tdl::AffineIndex>>& b, const Shape& shape) {
  if (a.size() != b.size()) {
    return false;
  }
  for (std::size_t dimension = 0; dimension < a.size(); ++dimension) {
    if (shape[dimension] == 1) {
      continue;
    }
    const auto bare = [](const std::optional<tdl::AffineIndex>& form) {
      return form && form->constant == 0 && form->divisor == 1 && form->coefficients.size() == 1 &&
             form->coefficients.front().second == 1;
    };
    if (!bare(a[dimension]) || !bare(b[dimension]) ||
        a[dimension]->coefficients.front().first != b[dimension]->coefficients.front().first) {
      return false;
    }
  }
  return true;
}

// Every part of the node is a rectangle of its results, whatever is cut.
bool only_concatenates(const tdl::NodeSemantics& semantics) {
  const auto& variables = semantics.variables();
  if (std::any_of(variables.begin(), variables.end(),
                  [](const tdl::Variable& variable) { return variable.whole && variable.extent > 1; })) {
    return false;
  }
  return std::all_of(semantics.strategies().begin(), semantics.strategies().end(), [](const tdl::Strategy& strategy) {
    return std::all_of(strategy.outcomes.begin(), strategy.outcomes.end(), [](tdl::Outcome outcome) {
      return outcome == tdl::Outcome::kConcatenate || outcome == tdl::Outcome::kReplicated;
    });
  });
}

class Joiner {
 public:
  Joiner(const Program& program, const std::vector<tdl::NodeSemantics>& semantics)
      : program_(program), semantics_(semantics), sets_(program.values.size()) {}

  std::vector<int> run() {
    for (NodeId node = 0; node < static_cast<NodeId>(program_.nodes.size()); ++node) {
      join_elementwise(node);
      join_gradients(node);
    }
    join_timesteps();
    for (const graph::StateOutput& output : program_.state_outputs) {
      join(output.state, output.value);
    }
    std::vector<int> representatives(program_.values.size());
    for (std::size_t value = 0; value < representatives.size(); ++value) {
      representatives[value] = sets_.find(static_cast<int>(value));
    }
    return representatives;
  }

 private:
  void join(ValueId a, ValueId b) {
    if (a != kNone && b != kNone && program_.value(a).shape == program_.value(b).shape) {
      sets_.join(a, b);
    }
  }

  void join_elementwise(NodeId id) {
    const Node& node = program_.node(id);
    const tdl::NodeSemantics& semantics = semantics_[static_cast<std::size_t>(id)];
    if (!semantics.described() || !only_concatenates(semantics)) {
      return;
    }
    const std::vector<ValueId> operands = graph::values_read(node);
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      if (node.outputs[result] == kNone) {
        continue;
      }
      const Shape& shape = program_.value(node.outputs[result]).shape;
      for (std::size_t operand = 0; operand < operands.size(); ++operand) {
        if (program_.value(operands[operand]).shape == shape &&
            same_index(semantics.operand_index(operand), semantics.result_index(result), shape)) {
          sets_.join(operands[operand], node.outputs[result]);
        }
      }
    }
  }

  // The result of a backward node is the gradient of the one operand of the forward node that has its shape.
  void join_gradients(NodeId id) {
    const Node& node = program_.node(id);
    if (node.forward == kNone) {
      return;
    }
    std::vector<ValueId> operands = graph::values_read(program_.node(node.forward));
    std::sort(operands.begin(), operands.end());
    operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
    for (const ValueId result : node.outputs) {
      if (result == kNone || program_.value(result).shape.empty()) {
        continue;
      }
      const auto of_its_shape = [&](ValueId operand) {
        return program_.value(operand).shape == program_.value(result).shape;
      };
      if (std::count_if(operands.begin(), operands.end(), of_its_shape) == 1) {
        sets_.join(*std::find_if(operands.begin(), operands.end(), of_its_shape), result);
      }
    }
  }

  // The n-th node of a timestep does what the n-th node of the others does.
  void join_timesteps() {
    std::map<std::tuple<std::string, graph::Phase, int>, std::vector<NodeId>> steps;
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes.size()); ++id) {
      const Node& node = program_.node(id);
      if (!node.recurrence.empty()) {
        steps[{node.recurrence, node.phase, node.timestep}].push_back(id);
      }
    }
    std::map<std::tuple<std::string, graph::Phase, std::size_t, std::string>, NodeId> first;
    for (const auto& [step, nodes] : steps) {
      std::map<std::string, std::size_t> uses;  // of an operator in this step, so that an extra node shifts nothing
      for (const NodeId id : nodes) {
        const Node& node = program_.node(id);
        const std::size_t place = uses[node.op]++;
        const auto [found, is_first] = first.try_emplace({std::get<0>(step), std::get<1>(step), place, node.op}, id);
        const Node& other = program_.node(found->second);
        if (is_first || other.outputs.size() != node.outputs.size()) {
          continue;
        }
        for (std::size_t result = 0; result < node.outputs.size(); ++result) {
          join(other.outputs[result], node.outputs[result]);
        }
      }
    }
  }

  const Program& program_;
  const std::vector<tdl::NodeSemantics>& semantics_;
  DisjointSets sets_;
};

}  // namespace

Coarsening coarsen(const Program& program, const std::vector<int>& signatures,
                   const std::vector<tdl::NodeSemantics>& semantics) {
  Coarsening coarsening;
  const std::vector<int> representatives = Joiner(program, semantics).run();
  coarsening.group_of_value.assign(program.values.size(), -1);
  const auto add_value = [&](ValueId value) {
    const auto representative = static_cast<std::size_t>(representatives[static_cast<std::size_t>(value)]);
    int& group = coarsening.group_of_value[representative];
    if (group < 0) {
      group = static_cast<int>(coarsening.groups.size());
      coarsening.groups.emplace_back();
    }
    coarsening.group_of_value[static_cast<std::size_t>(value)] = group;
    coarsening.groups[static_cast<std::size_t>(group)].push_back(value);
  };
  for (const ValueId input : program.inputs) {
    add_value(input);
  }
  for (const Node& node : program.nodes) {
    for (const ValueId result : node.outputs) {
      if (result != kNone) {
        add_value(result);
      }
    }
  }

  const std::vector<bool> used = values_in_use(program);
  std::map<std::tuple<int, std::vector<int>, std::vector<int>>, int> numbers;
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes.size()); ++id) {
    const Node& node = program.node(id);
    NodeClass made;
    made.representative = id;
    made.signature = signatures[static_cast<std::size_t>(id)];
    for (const ValueId operand : graph::values_read(node)) {
      made.operand_groups.push_back(coarsening.group_of_value[static_cast<std::size_t>(operand)]);
    }
    for (const ValueId result : node.outputs) {
      const bool matters = result != kNone && used[static_cast<std::size_t>(result)];
      made.result_groups.push_back(matters ? coarsening.group_of_value[static_cast<std::size_t>(result)] : kReplicated);
    }
    const auto [found, is_new] = numbers.try_emplace({made.signature, made.operand_groups, made.result_groups},
                                                     static_cast<int>(coarsening.classes.size()));
    if (is_new) {
      coarsening.classes.push_back(std::move(made));
    }
    ++coarsening.classes[static_cast<std::size_t>(found->second)].nodes;
    coarsening.class_of_node.push_back(found->second);
  }
  return coarsening;
}

}  // namespace tesser::partition
