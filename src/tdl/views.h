// How the dimensions of two shapes with the same elements in row-major order belong together. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "tdl/semantics.h"

namespace tesser::tdl {

// Indices of two tensors over variables that are appended to `variables`. Both shapes have the same number of elements.
struct View {
  std::vector<AffineIndex> from;
  std::vector<AffineIndex> to;
};
View match_view(const Shape& from, const Shape& to, std::vector<Variable>& variables);

}  // namespace tesser::tdl
