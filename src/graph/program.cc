#include "graph/program.h"

#include <algorithm>

namespace tesser::graph {

ValueId Program::find(const std::string& value_name) const {
  const auto found = std::find_if(values.begin(), values.end(), [&](const Value& v) { return v.name == value_name; });
  return found == values.end() ? kNone : static_cast<ValueId>(found - values.begin());
}

ValueId value_argument(const Node& node, std::size_t index) {
  const auto* reference = index < node.args.size() ? std::get_if<ValueRef>(&node.args[index]) : nullptr;
  return reference == nullptr ? kNone : reference->id;
}

std::optional<double> number_argument(const Node& node, std::size_t index) {
  if (index >= node.args.size()) return std::nullopt;
  if (const auto* real = std::get_if<double>(&node.args[index])) return *real;
  if (const auto* integer = std::get_if<std::int64_t>(&node.args[index])) return static_cast<double>(*integer);
  return std::nullopt;
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
