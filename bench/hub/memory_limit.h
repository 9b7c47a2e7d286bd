// How fast this machine's memory is, in the manner of STREAM (McCalpin, 1995).
#pragma once

#include <chrono>

namespace tesser::bench {

// Prints {"copy": GB/s, "copy non-temporal": ..., ...}: the best that all processors together reach with arrays far
// beyond every cache, counting the bytes that a kernel reads and writes and not what caches fetch on top.
int measure_memory_limit(std::chrono::milliseconds time_of_each);

}  // namespace tesser::bench
