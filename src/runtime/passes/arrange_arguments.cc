#include <map>
#include <utility>
#include <vector>

#include "runtime/passes/passes.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;

// A copy that is kept for a later reader costs memory until then; farther away it is made again.
constexpr NodeId kFarthestReader = 16;

class Arranger {
 public:
  Arranger(Program& program, layout::Weights weights) : program_(program), layouts_(program, weights) {}

  void run() {
    // By position: nodes are moved out of the program one by one, and arranged values are added to it.
    for (std::size_t index = 0; index < program_.nodes.size(); ++index) {
      Node node = std::move(program_.nodes[index]);
      for (std::size_t position = 0; position < node.args.size(); ++position) {
        if (auto* const reference = std::get_if<ValueRef>(&node.args[position])) arrange(node, position, *reference);
        if (auto* const list = std::get_if<std::vector<ValueRef>>(&node.args[position])) {
          for (ValueRef& reference : *list) arrange(node, position, reference);
        }
      }
      layouts_.define(node);
      nodes_.push_back(std::move(node));
    }
    replace_nodes(program_, std::move(nodes_));
  }

 private:
  struct Arranged {
    ValueId value = kNone;
    NodeId last_reader = 0;
    graph::Phase phase = graph::Phase::kForward;
  };

  void arrange(const Node& reader, std::size_t position, ValueRef& reference) {
    if (reference.id == kNone) return;
    const auto target = layouts_.needed(reader, position, reference.id);
    if (!target) return;
    const Shape& shape = program_.value(reference.id).shape;
    layout::Order order = layout::order_of(shape, *target);
    Arranged& known = arranged_[{reference.id, order}];
    const auto here = static_cast<NodeId>(nodes_.size());
    if (known.value == kNone || known.phase != reader.phase || here - known.last_reader > kFarthestReader) {
      known.value = add(reader, reference.id, std::move(order));
      known.phase = reader.phase;
    }
    known.last_reader = here;
    reference.id = known.value;
  }

  ValueId add(const Node& reader, ValueId source, layout::Order order) {
    graph::Value value = program_.value(source);
    value.name += "/arranged";
    value.role = graph::Role::kIntermediate;
    value.of = kNone;
    const auto id = static_cast<ValueId>(program_.values.size());
    program_.values.push_back(std::move(value));
    Node node;
    node.name = program_.values.back().name;
    node.op = "tesser::arrange";
    node.args = {ValueRef{source}, std::move(order)};
    node.outputs = {id};
    node.phase = reader.phase;
    node.module = reader.module;
    node.source = reader.source;
    layouts_.define(node);
    nodes_.push_back(std::move(node));
    return id;
  }

  Program& program_;
  layout::Layouts layouts_;
  std::vector<Node> nodes_;
  std::map<std::pair<ValueId, layout::Order>, Arranged> arranged_;
};

}  // namespace

graph::Program arrange_arguments(graph::Program program, layout::Weights weights) {
  Arranger(program, weights).run();
  return program;
}

}  // namespace tesser::runtime
