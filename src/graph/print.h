#pragma once

#include <string>

#include "graph/program.h"

namespace tesser::graph {

// A verified program for people to read: inputs, one node a line, outputs.
//     %y = aten::add.Tensor(%x, 1.0)  float32[8, 3]  # module conv1 step.py:3
std::string print(const Program& program);

// One node as print() shows it, without a line end.
std::string print_node(const Program& program, const Node& node);

// "cosine rate 0.001 minimum 0.0 steps 1000"
std::string schedule_text(const Schedule& schedule);

}  // namespace tesser::graph
