// Updates where the parameters lie, for replicas, whose updates a hub makes (docs/runtime.md).
#pragma once

#include "graph/program.h"
#include "partition/plan.h"

namespace tesser::partition {

// Cuts every tesser::sgd and tesser::adam as its parameter lies at rest, and lays optimizer state and new state there
// too, so that no worker updates a part for another. `program` is expanded, the plan fits it.
void update_where_parameters_lie(Plan& plan, const graph::Program& program);

}  // namespace tesser::partition
