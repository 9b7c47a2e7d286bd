// Values of the expressions of check clauses. Internal to this folder.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/program.h"
#include "tdl/description.h"

namespace tesser::tdl {

// Names and what they stand for: extents, lists of them (packs), attributes. Names of tensors are apart.
struct CheckValues {
  std::map<std::string, graph::Argument> names;
  std::set<std::string> given;                              // tensors that are
  std::map<std::string, std::vector<std::int64_t>> shapes;  // of those that are no list
  // Called for a name that is not known, with whether it is a pack; nothing when such names are defects.
  std::function<graph::Argument(const std::string&, bool)> draw;
  std::string defect;  // the first one; everything after it has no meaning

  graph::Argument evaluate(const Expression& expression);
  std::vector<std::int64_t> integers(const Expression& expression);  // of an integer or list
  bool holds(const Expression& condition);

 private:
  graph::Argument fail(const std::string& what);
  graph::Argument call(const Expression& expression);
  graph::Argument binary(const Expression& expression);
  std::vector<std::size_t> axes(const Expression& expression, std::size_t rank);
};

}  // namespace tesser::tdl
