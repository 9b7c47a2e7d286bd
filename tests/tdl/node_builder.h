// Programs of one node, for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/program.h"

namespace tesser::tdl {

// A node whose operands are inputs of the given shapes, in the order in which its arguments name them.
class NodeBuilder {
 public:
  explicit NodeBuilder(std::string op) {
    node_.name = "node";
    node_.op = std::move(op);
  }
  NodeBuilder& tensor(Shape shape) {
    node_.args.emplace_back(graph::ValueRef{add(std::move(shape))});
    return *this;
  }
  NodeBuilder& list(std::vector<Shape> shapes) {
    std::vector<graph::ValueRef> refs;
    for (Shape& shape : shapes) {
      refs.push_back({add(std::move(shape))});
    }
    node_.args.emplace_back(std::move(refs));
    return *this;
  }
  template <typename Attribute>
  NodeBuilder& with(Attribute attribute) {
    node_.args.emplace_back(std::move(attribute));
    return *this;
  }
  NodeBuilder& integer(std::int64_t value) { return with(value); }
  NodeBuilder& integers(std::vector<std::int64_t> values) { return with(std::move(values)); }
  NodeBuilder& null() { return with(graph::None{}); }
  NodeBuilder& result(Shape shape) {
    node_.outputs.push_back(add(std::move(shape)));
    return *this;
  }
  NodeBuilder& no_result() {
    node_.outputs.push_back(graph::kNone);
    return *this;
  }

  const graph::Program& program() const { return program_; }
  const graph::Node& node() const { return node_; }

 private:
  graph::ValueId add(Shape shape) {
    graph::Value value;
    value.name = "v" + std::to_string(program_.values.size());
    value.shape = std::move(shape);
    program_.values.push_back(std::move(value));
    return static_cast<graph::ValueId>(program_.values.size() - 1);
  }

  graph::Program program_;
  graph::Node node_;
};

}  // namespace tesser::tdl
