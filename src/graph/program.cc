#include "graph/program.h"

#include <algorithm>

namespace tesser::graph {

ValueId Program::find(const std::string& value_name) const {
  const auto found = std::find_if(values.begin(), values.end(), [&](const Value& v) { return v.name == value_name; });
  return found == values.end() ? kNone : static_cast<ValueId>(found - values.begin());
}

std::vector<ValueId> values_read(const Node& node) {
  std::vector<ValueId> read;
  for (const Argument& argument : node.args) {
    if (const auto* const reference = std::get_if<ValueRef>(&argument)) {
      if (reference->id != kNone) {
        read.push_back(reference->id);
      }
    } else if (const auto* const list = std::get_if<std::vector<ValueRef>>(&argument)) {
      for (const ValueRef& entry : *list) {
        if (entry.id != kNone) {
          read.push_back(entry.id);
        }
      }
    }
  }
  return read;
}

}  // namespace tesser::graph
