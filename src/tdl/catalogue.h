// The descriptions of operators: read from .tdl text (docs/tdl.md), found by operator.
//
// Immutable once filled; any number of threads may read.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tesser::tdl {

struct Description;  // parsed; src/tdl/description.h

class Catalogue {
 public:
  Catalogue() = default;

  // The descriptions shipped with tesser (src/tdl/operators/*.tdl, compiled in).
  static const Catalogue& shipped();

  // Adds the descriptions of a text; one that exists already is replaced. `file` is named in messages:
  // "my.tdl:3:14: expected ']' ...". On an error nothing is added.
  Result<void> add(std::string_view text, const std::string& file);
  Result<void> add_file(const std::string& path);

  // For "aten::sum.dim_IntList": that description, else "aten::sum"; nullptr when there is none.
  const Description* find(std::string_view op) const;
  std::vector<std::string> operators() const;  // sorted

 private:
  std::map<std::string, std::shared_ptr<const Description>, std::less<>> descriptions_;
};

}  // namespace tesser::tdl
