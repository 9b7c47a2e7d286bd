// tesser's hub: one process that serves all workers, or a hub of one core in every worker's process.
#pragma once

#include "hub/exchange.h"

namespace tesser::bench {

// `network`: workers and hub reach each other by TCP over loopback, never through shared memory.
int measure_dedicated(const Exchange& exchange, bool network);
int measure_colocated(const Exchange& exchange);

}  // namespace tesser::bench
