#include "partition/updates_at_rest.h"

namespace tesser::partition {

void update_where_parameters_lie(Plan& plan, const graph::Program& program) {
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    const graph::Node& node = program.nodes[id];
    if (node.op != "tesser::sgd" && node.op != "tesser::adam") continue;
    const graph::ValueId parameter = graph::value_argument(node, 0);
    const std::vector<Cut> layout = plan.layouts[static_cast<std::size_t>(parameter)];
    plan.nodes[id] = layout;  // a variable of an update is a dimension of the parameter
    for (std::size_t argument = 2; argument < (node.op == "tesser::adam" ? 5U : 3U); ++argument) {
      const graph::ValueId state = graph::value_argument(node, argument);
      if (state != graph::kNone) plan.layouts[static_cast<std::size_t>(state)] = layout;
    }
    for (const graph::ValueId output : node.outputs) {
      if (output != graph::kNone) plan.layouts[static_cast<std::size_t>(output)] = layout;
    }
  }
}

}  // namespace tesser::partition
