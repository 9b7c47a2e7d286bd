// Wide aggregation, as a parameter server does it that gives all its threads to one key (Parameter Hub, section 3.2.2):
// the slower alternative, kept for comparison.
#pragma once

#include "hub/exchange.h"

namespace tesser::bench {

int measure_wide(const Exchange& exchange);

}  // namespace tesser::bench
