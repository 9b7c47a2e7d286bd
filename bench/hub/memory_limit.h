// How fast this machine's memory is, in the manner of STREAM (McCalpin, 1995).
#pragma once

#include <chrono>

namespace tesser::bench {

// Prints {"copy": GB/s, "copy non-temporal": ..., ...}: the best that all processors together reach with arrays far
// beyond every cache, counting the bytes that a kernel reads and writes and not what caches fetch on top. "exchange sgd
// 4" is a hub's own loop over the gradients of 4 workers, weights and momentum, with no hub and no worker: the bound of
// an exchange with as many arrays at once. In pages of 2 MiB, or of 4 KiB and shared.
int measure_memory_limit(std::chrono::milliseconds time_of_each, bool huge_pages);

}  // namespace tesser::bench
