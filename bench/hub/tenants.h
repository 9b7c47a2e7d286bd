// Eight tenants of one hub at once, for ./x bench hub --tenants: how fast each is alone, beside seven others, and when
// one of these is hostile.
#pragma once

#include <chrono>

namespace tesser::bench {

// Prints {"shares": ..., "alone": ..., "together": [...], "beside_hostile": [...], "hostile_acts_s": ...}: exchanges a
// second of each tenant; then, as root, another such line for tenants that each have an equal share of the processors
// and a hub that goes before them, as if all had machines of their own ("shares": true). Every case lasts `time`.
// Returns the exit code. Call it before any thread starts.
int measure_tenants(std::chrono::milliseconds time);

}  // namespace tesser::bench
