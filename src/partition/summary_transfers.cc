// Why bytes move, in the words of the model.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "graph/operator_class.h"
#include "partition/summary.h"

namespace tesser::partition {
namespace {

using graph::kNone;
using graph::NodeId;
using graph::ValueId;

class Reasons {
 public:
  Reasons(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, const Plan& plan)
      : program_(program),
        semantics_(semantics),
        plan_(plan),
        names_(program.values.size()),
        first_(plan.levels.size(), 0) {
    for (const graph::Node& node : program.nodes) {
      const ValueId parameter = graph::value_argument(node, 0);
      if (node.phase != graph::Phase::kUpdate || parameter == kNone ||
          program.value(parameter).role != graph::Role::kParameter) {
        continue;
      }
      name_gradient(graph::value_argument(node, 1), "the gradient of " + pattern(program.value(parameter).name));
    }
  }

  std::string of_operand(NodeId id, std::size_t operand, ValueId value) const {
    const tdl::NodeSemantics& semantics = semantics_[static_cast<std::size_t>(id)];
    const tdl::Region owned = owned_region(plan_, program_, value, first_);
    const tdl::Region needed =
        tdl::intersection(semantics.operand_region(operand, box(id)), tdl::whole(program_.value(value).shape));
    bool more = false;   // of a dimension than it owns
    bool other = false;  // another part of a dimension: it lies cut where it is needed whole, and the other way
    for (std::size_t dim = 0; dim < owned.size(); ++dim) {
      more = more || needed[dim].size() > owned[dim].size();
      other = other || needed[dim].size() < owned[dim].size();
    }
    const std::string lies = layout_text(layout(value), plan_.levels, owned.size());
    const std::string taker = taken_by(id);
    if (more && other) return "re-cut of " + name(value) + " (" + lies + ") for " + taker;
    if (!more) return "shift of " + name(value) + " (" + lies + "): parts of " + taker + " lie elsewhere";
    const std::int64_t missing = tdl::volume(needed) - tdl::volume(tdl::intersection(needed, owned));
    if (missing * 4 < tdl::volume(owned)) return "borders of " + name(value) + " (" + lies + ") for " + taker;
    return "all-gather of " + name(value) + " (" + lies + "): every part of " + taker + " needs it";
  }

  std::string of_result(NodeId id, std::size_t result, ValueId value) const {
    const tdl::NodeSemantics& semantics = semantics_[static_cast<std::size_t>(id)];
    const std::string lies = layout_text(layout(value), plan_.levels, program_.value(value).shape.size());
    const bool has_copies =
        std::any_of(layout(value).begin(), layout(value).end(), [](const Cut& cut) { return cut.axis == kReplicated; });
    std::string over;
    for (std::size_t level = 0; level < plan_.levels.size(); ++level) {
      const Cut& cut = plan_.nodes[static_cast<std::size_t>(id)][level];
      for (const tdl::Strategy& strategy : semantics.strategies()) {
        const tdl::Outcome outcome = strategy.outcomes[result];
        if (cut.axis == kReplicated || strategy.variable != cut.axis || outcome == tdl::Outcome::kConcatenate ||
            outcome == tdl::Outcome::kReplicated) {
          continue;
        }
        const std::string dimension = where_it_stands(id, cut.axis);
        if (over.find(dimension) == std::string::npos) over += (over.empty() ? "" : " and ") + dimension;
      }
    }
    if (!over.empty()) {
      return std::string(has_copies ? "all-reduce of " : "reduce-scatter of ") + name(value) + " (" + lies +
             "): its parts are summed over " + over;
    }
    const tdl::Region owned = owned_region(plan_, program_, value, first_);
    const tdl::Region made = semantics.result_region(result, box(id));
    const bool grows = made.size() == owned.size() && tdl::volume(made) < tdl::volume(owned);
    return std::string(grows ? "all-gather of " : "re-cut of ") + name(value) + " (" + lies + ") made by " +
           taken_by(id);
  }

 private:
  const std::vector<Cut>& layout(ValueId value) const { return plan_.layouts[static_cast<std::size_t>(value)]; }
  tdl::Box box(NodeId id) const { return worker_box(plan_, id, semantics_[static_cast<std::size_t>(id)], first_); }

  // Back from an update through what only passes a gradient on: views, clipping, sums of gradients.
  void name_gradient(ValueId value, const std::string& name) {
    while (value != kNone && names_[static_cast<std::size_t>(value)].empty()) {
      names_[static_cast<std::size_t>(value)] = name;
      const NodeId producer = program_.value(value).producer;
      if (producer == kNone) return;
      const graph::Node& node = program_.node(producer);
      const bool passes = graph::operator_class(node.op) == graph::OperatorClass::kView ||
                          node.phase == graph::Phase::kClip || graph::base_name(node.op) == "aten::_to_copy";
      if (!passes) return;
      value = graph::value_argument(node, 0);
    }
  }

  std::string module_text(const graph::Node& node) const {
    const std::string module = pattern(node.module.value_or(""));
    return module.empty() ? "" : " in " + module;
  }

  std::string taken_by(NodeId id) const {
    const graph::Node& node = program_.node(id);
    const std::string_view op = graph::base_name(node.op);
    return std::string(op.substr(op.find("::") + 2)) + module_text(node) + " (" +
           cut_text(plan_.nodes[static_cast<std::size_t>(id)], plan_.levels, semantics_[static_cast<std::size_t>(id)]) +
           ")";
  }

  // A value in the user's words: its own name for inputs, what it is the gradient of, or what makes it.
  std::string name(ValueId value) const {
    if (const std::string& known = names_[static_cast<std::size_t>(value)]; !known.empty()) return known;
    const std::string shape = shape_text(program_.value(value).shape);
    ValueId made = value;  // behind views, which make nothing
    while (program_.value(made).producer != kNone) {
      const graph::Node& producer = program_.node(program_.value(made).producer);
      if (graph::operator_class(producer.op) != graph::OperatorClass::kView) break;
      made = graph::value_argument(producer, 0);
    }
    const graph::Value& it = program_.value(made);
    if (it.producer == kNone) return pattern(it.name);
    const graph::Node& node = program_.node(it.producer);
    const std::string_view op = graph::base_name(node.op);
    const std::string what(op.substr(op.find("::") + 2));
    return (node.phase == graph::Phase::kBackward ? "the gradient by " : "the result of ") + what + module_text(node) +
           " " + shape;
  }

  // "dimension 0 of images": the first operand that the variable is an index of.
  std::string where_it_stands(NodeId id, int variable) const {
    const tdl::NodeSemantics& semantics = semantics_[static_cast<std::size_t>(id)];
    const std::vector<ValueId> read = graph::values_read(program_.node(id));
    for (std::size_t operand = 0; operand < read.size(); ++operand) {
      const auto& index = semantics.operand_index(operand);
      for (std::size_t dim = 0; dim < index.size(); ++dim) {
        if (!index[dim]) continue;
        for (const auto& [stands, coefficient] : index[dim]->coefficients) {
          if (stands == variable) return "dimension " + std::to_string(dim) + " of " + name(read[operand]);
        }
      }
    }
    return semantics.variables()[static_cast<std::size_t>(variable)].name;
  }

  const graph::Program& program_;
  const std::vector<tdl::NodeSemantics>& semantics_;
  const Plan& plan_;
  std::vector<std::string> names_;  // by value: of gradients of parameters
  std::vector<int> first_;          // the first worker's digits
};

}  // namespace

std::vector<TransferRow> transfer_rows(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                                       const Plan& plan, const Traffic& traffic) {
  const Reasons reasons(program, semantics, plan);
  std::vector<TransferRow> rows;
  std::map<std::string, std::size_t> places;
  const auto add = [&](std::string what, std::int64_t bytes) {
    const auto [place, is_new] = places.try_emplace(what, rows.size());
    if (is_new) rows.push_back({std::move(what)});
    ++rows[place->second].count;
    rows[place->second].bytes += bytes;
  };
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes.size()); ++id) {
    const NodeTraffic& node = traffic.nodes[static_cast<std::size_t>(id)];
    const std::vector<ValueId> read = graph::values_read(program.node(id));
    for (std::size_t operand = 0; operand < read.size(); ++operand) {
      if (node.operands[operand] > 0) add(reasons.of_operand(id, operand, read[operand]), node.operands[operand]);
    }
    for (std::size_t result = 0; result < node.results.size(); ++result) {
      if (node.results[result] > 0) {
        add(reasons.of_result(id, result, program.node(id).outputs[result]), node.results[result]);
      }
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TransferRow& a, const TransferRow& b) { return a.bytes > b.bytes; });
  return rows;
}

}  // namespace tesser::partition
