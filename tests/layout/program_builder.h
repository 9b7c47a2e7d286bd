#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/program.h"
#include "graph/verify.h"

namespace tesser {

// Builds small programs: inputs first, then nodes. All values are float32.
class ProgramBuilder {
 public:
  graph::ValueId input(graph::Role role, Shape shape) {
    const graph::ValueId id = define(std::move(shape));
    program_.values.back().role = role;
    program_.inputs.push_back(id);
    return id;
  }

  // A node with several results.
  std::vector<graph::ValueId> node(const std::string& op, std::vector<graph::Argument> args,
                                   const std::vector<Shape>& results) {
    graph::Node node;
    node.name = "n" + std::to_string(program_.nodes.size());
    node.op = op;
    node.args = std::move(args);
    for (std::size_t place = 0; place < results.size(); ++place) {
      node.outputs.push_back(define(results[place]));
      program_.values.back().producer = static_cast<graph::NodeId>(program_.nodes.size());
      program_.values.back().output_index = static_cast<int>(place);
    }
    const std::vector<graph::ValueId> outputs = node.outputs;
    program_.nodes.push_back(std::move(node));
    return outputs;
  }
  graph::ValueId one(const std::string& op, std::vector<graph::Argument> args, Shape result) {
    return node(op, std::move(args), {std::move(result)})[0];
  }

  graph::Program& program() { return program_; }

 private:
  graph::ValueId define(Shape shape) {
    const auto id = static_cast<graph::ValueId>(program_.values.size());
    program_.values.emplace_back();
    program_.values.back().name = "v" + std::to_string(id);
    program_.values.back().shape = std::move(shape);
    return id;
  }

  graph::Program program_;
};

inline graph::Argument value(graph::ValueId id) { return graph::ValueRef{id}; }
inline graph::Argument integer(std::int64_t number) { return number; }
inline graph::Argument integers(std::vector<std::int64_t> numbers) { return numbers; }

}  // namespace tesser
