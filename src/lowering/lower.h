// From a plan to one program a worker (Tofu, EuroSys 2019, section 6; docs/formats/lowered.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "partition/plan.h"
#include "tdl/catalogue.h"
#include "tdl/semantics.h"

namespace tesser::lowering {

struct Lowered {
  std::string name;
  std::vector<graph::Program> workers;
  std::int64_t transfers = 0;
  std::int64_t bytes = 0;  // sent by all workers in one step
};

struct LoweringOptions {
  int prefetch = partition::kPrefetch;  // operators ahead of its use that an argument is sent
};

// `program` is expanded, `semantics` by node, the plan fits it. Regions that a worker has are not fetched; a region
// that several operators of one phase need is fetched once. Reductions are in the order of the parts, spread over the
// owners where several own the same rectangle. The result has passed verify_order().
Result<Lowered> lower(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                      const tdl::Catalogue& catalogue, const partition::Plan& plan, const LoweringOptions& options);

}  // namespace tesser::lowering
