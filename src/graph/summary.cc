#include "graph/summary.h"

#include <limits>
#include <numeric>
#include <unordered_map>

#include "graph/operator_class.h"

namespace tesser::graph {
namespace {

void add(std::int64_t& total, std::int64_t amount) {
  if (__builtin_add_overflow(total, amount, &total)) {
    total = std::numeric_limits<std::int64_t>::max();
  }
}

// The tree of module paths; parents are made with their first child.
class Modules {
 public:
  explicit Modules(int limit) : limit_(limit) { all_.push_back({}); }

  // Calls `count` with the module of this path and each one above it.
  template <typename Count>
  void charge(std::string_view path, const Count& count) {
    for (std::size_t place = find(path); place != kNowhere; place = parents_[place]) {
      count(all_[place]);
    }
  }

  std::vector<ModuleSummary> in_order() const {
    std::vector<ModuleSummary> ordered;
    ordered.reserve(all_.size());
    std::vector<std::size_t> open{0};
    while (!open.empty()) {
      const std::size_t place = open.back();
      open.pop_back();
      ordered.push_back(all_[place]);
      open.insert(open.end(), children_[place].rbegin(), children_[place].rend());
    }
    return ordered;
  }

 private:
  static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

  // The module itself, or the deepest one above it that is listed.
  std::size_t find(std::string_view path) {
    std::size_t place = 0;
    int depth = 0;
    for (std::size_t begin = 0; begin < path.size() && (limit_ < 0 || depth < limit_);) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      ++depth;
      place = child(place, std::string(path.substr(0, end)), depth);
      begin = end + 1;
    }
    return place;
  }

  std::size_t child(std::size_t parent, std::string path, int depth) {
    const auto [found, is_new] = places_.try_emplace(path, all_.size());
    if (is_new) {
      all_.push_back({});
      all_.back().path = std::move(path);
      all_.back().depth = depth;
      parents_.push_back(parent);
      children_.emplace_back();
      children_[parent].push_back(found->second);
    }
    return found->second;
  }

  int limit_;
  std::vector<ModuleSummary> all_;
  std::vector<std::size_t> parents_{kNowhere};
  std::vector<std::vector<std::size_t>> children_{{}};
  std::unordered_map<std::string, std::size_t> places_;
};

std::string_view module_of_parameter(std::string_view name) {
  const std::size_t end = name.rfind('.');
  return end == std::string_view::npos ? std::string_view() : name.substr(0, end);
}

}  // namespace

Summary summarize(const Program& program, int depth) {
  Summary summary;
  Modules modules(depth);
  for (const ValueId input : program.inputs) {
    const Value& value = program.value(input);
    const auto role = static_cast<std::size_t>(value.role);
    ++summary.values[role];
    add(summary.bytes[role], value.bytes());
    if (value.role == Role::kParameter) {
      add(summary.parameters, value.elements());
      if (value.trainable) {
        add(summary.trainable_parameters, value.elements());
      }
      modules.charge(module_of_parameter(value.name),
                     [&](ModuleSummary& module) { add(module.parameters, value.elements()); });
    }
  }
  for (const Node& node : program.nodes) {
    const auto phase = static_cast<std::size_t>(node.phase);
    const std::int64_t operations = floating_point_operations(program, node);
    ++summary.nodes[phase];
    add(summary.floating_point_operations[phase], operations);
    ++summary.operators[node.op];
    if (operator_class(node.op) != OperatorClass::kView) {
      for (const ValueId output : node.outputs) {
        if (output != kNone) {
          add(summary.result_bytes, program.value(output).bytes());
        }
      }
    }
    modules.charge(node.module.value_or(""), [&](ModuleSummary& module) {
      ++module.nodes;
      add(module.floating_point_operations[phase], operations);
    });
  }
  summary.modules = modules.in_order();
  return summary;
}

}  // namespace tesser::graph
