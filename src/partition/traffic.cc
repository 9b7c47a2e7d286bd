#include "partition/traffic.h"

#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <tuple>

#include "partition/placement.h"
#include "partition/signature.h"

namespace tesser::partition {
namespace {

struct NodeBytes {
  std::vector<double> operands;
  std::vector<double> results;
  std::vector<double> workers;

  double total() const { return std::accumulate(workers.begin(), workers.end(), 0.0); }
};

// Bytes at the outermost `depth` levels: what passes between their groups.
class Account {
 public:
  // `used`: values_in_use of the program.
  Account(const graph::Program& program, const Plan& plan, std::size_t depth, const std::vector<bool>& used)
      : program_(program),
        plan_(plan),
        levels_(std::span(plan.levels).first(depth)),
        used_(used),
        regions_(program.values.size()) {}

  NodeBytes of(graph::NodeId id, const tdl::NodeSemantics& semantics) {
    const graph::Node& node = program_.node(id);
    const std::vector<graph::ValueId> values = graph::values_read(node);
    const NodeParts parts = node_parts(program_, node, semantics, plan_.nodes[static_cast<std::size_t>(id)], levels_);
    NodeBytes bytes;
    bytes.workers.assign(static_cast<std::size_t>(worker_count(levels_)), 0.0);
    for (std::size_t operand = 0; operand < values.size(); ++operand) {
      double& sum = bytes.operands.emplace_back(0.0);
      if (!parts.counted[operand]) {
        continue;
      }
      const std::vector<tdl::Region>& owned = regions(values[operand]);
      for (std::size_t worker = 0; worker < owned.size(); ++worker) {
        const double received =
            operand_elements(parts.operands[operand][worker], owned[worker]) * element_bytes(values[operand]);
        bytes.workers[worker] += received;
        sum += received;
      }
    }
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      double& sum = bytes.results.emplace_back(0.0);
      const graph::ValueId value = node.outputs[result];
      if (value == graph::kNone || !used_[static_cast<std::size_t>(value)]) {
        continue;
      }
      const std::vector<tdl::Region>& owned = regions(value);
      const std::int64_t owners = owners_of_a_part(cuts(value), levels_);
      for (std::size_t worker = 0; worker < owned.size(); ++worker) {
        const double received =
            result_elements(parts.results[result][worker], parts.partial_results[result], owned[worker], owners) *
            element_bytes(value);
        bytes.workers[worker] += received;
        sum += received;
      }
    }
    return bytes;
  }

  std::span<const Cut> cuts(graph::ValueId value) const { return plan_.layouts[static_cast<std::size_t>(value)]; }

 private:
  double element_bytes(graph::ValueId value) const {
    return static_cast<double>(element_size(program_.value(value).dtype));
  }

  const std::vector<tdl::Region>& regions(graph::ValueId value) {
    std::vector<tdl::Region>& regions = regions_[static_cast<std::size_t>(value)];
    if (regions.empty()) {
      regions = parts_by_worker(tdl::whole(program_.value(value).shape), cuts(value), levels_);
    }
    return regions;
  }

  const graph::Program& program_;
  const Plan& plan_;
  std::span<const Level> levels_;
  const std::vector<bool>& used_;
  std::vector<std::vector<tdl::Region>> regions_;
};

std::vector<std::int64_t> rounded(const std::vector<double>& bytes) {
  std::vector<std::int64_t> whole;
  whole.reserve(bytes.size());
  for (const double value : bytes) {
    whole.push_back(std::llround(value));
  }
  return whole;
}

// By node: a number shared by nodes that cost the same, because signature, cuts and layouts are the same.
std::vector<int> equal_nodes(const graph::Program& program, const Plan& plan, const std::vector<bool>& used) {
  const std::vector<int> signatures = node_signatures(program);
  std::map<std::vector<std::int64_t>, int> numbers;
  std::vector<int> equal;
  std::vector<std::int64_t> key;
  const auto append = [&key](const std::vector<Cut>& cuts) {
    for (const Cut& cut : cuts) {
      key.push_back(cut.axis);
      key.push_back(cut.granularity);
    }
  };
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    key.assign(1, signatures[id]);
    append(plan.nodes[id]);
    for (const graph::ValueId value : graph::values_read(program.nodes[id])) {
      append(plan.layouts[static_cast<std::size_t>(value)]);
    }
    for (const graph::ValueId value : program.nodes[id].outputs) {
      if (value != graph::kNone && used[static_cast<std::size_t>(value)]) {
        append(plan.layouts[static_cast<std::size_t>(value)]);
      } else {
        key.push_back(-2);
      }
    }
    equal.push_back(numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
  }
  return equal;
}

}  // namespace

std::int64_t NodeTraffic::total() const {
  return std::accumulate(results.begin(), results.end(),
                         std::accumulate(operands.begin(), operands.end(), std::int64_t{0}));
}

NodeTraffic node_traffic(const graph::Program& program, graph::NodeId node, const tdl::NodeSemantics& semantics,
                         const Plan& plan) {
  const std::vector<bool> used = values_in_use(program);
  const NodeBytes bytes = Account(program, plan, plan.levels.size(), used).of(node, semantics);
  return {rounded(bytes.operands), rounded(bytes.results)};
}

Traffic plan_traffic(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                     const Plan& plan) {
  Traffic traffic;
  traffic.nodes.resize(program.nodes.size());
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    traffic.nodes[id].operands.assign(graph::values_read(program.nodes[id]).size(), 0);
    traffic.nodes[id].results.assign(program.nodes[id].outputs.size(), 0);
  }
  const std::vector<bool> used = values_in_use(program);
  const std::vector<int> equal = equal_nodes(program, plan, used);
  double outer = 0;  // bytes between the groups of the levels before
  std::vector<double> workers(1, 0.0);
  for (std::size_t depth = 1; depth <= plan.levels.size(); ++depth) {
    Account account(program, plan, depth, used);
    workers.assign(static_cast<std::size_t>(worker_count(std::span(plan.levels).first(depth))), 0.0);
    std::vector<NodeBytes> distinct;
    for (std::size_t id = 0; id < program.nodes.size(); ++id) {
      const auto number = static_cast<std::size_t>(equal[id]);
      if (number == distinct.size()) {
        distinct.push_back(account.of(static_cast<graph::NodeId>(id), semantics[id]));
      }
      const NodeBytes& bytes = distinct[number];
      for (std::size_t worker = 0; worker < workers.size(); ++worker) {
        workers[worker] += bytes.workers[worker];
      }
      if (depth == plan.levels.size()) {
        traffic.nodes[id] = {rounded(bytes.operands), rounded(bytes.results)};
      }
    }
    const double all = std::accumulate(workers.begin(), workers.end(), 0.0);
    traffic.level_bytes.push_back(std::llround(all - outer));
    outer = all;
  }
  traffic.worker_bytes = rounded(workers);
  traffic.total = std::llround(outer);
  return traffic;
}

}  // namespace tesser::partition
