// Which dimensions belong together: dimension 0 of the rows [15, 64] and of the sequences [5, 3, 64] they are a view of
// are cut at the same places only if rows are cut in blocks of three.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "partition/coarsen.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// A dimension of a group or a variable of a class: which family it belongs to, and how many of its elements make one
// unit of the family. Families are numbered from 0; numbers mean nothing else.
struct Aligned {
  int family = -1;
  std::int64_t unit = 1;
};

struct Alignment {
  std::vector<std::vector<Aligned>> dimensions;  // by group, by dimension
  std::vector<std::vector<Aligned>> variables;   // by class, by variable
};

// Dimensions are joined through the variables that index them over their whole length; a link that contradicts an
// earlier one is left out.
Alignment align(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                const Coarsening& coarsening);

}  // namespace tesser::partition
