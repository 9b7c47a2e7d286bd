// The machines that workers run on, as far as planning sees them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tesser::partition {

// Links that separate `parts` groups of workers from each other, outermost (slowest) first.
struct Link {
  std::string name = "link";
  int parts = 1;
  double bandwidth = 5e9;  // bytes a second that one worker receives over it
  double latency = 10e-6;  // seconds a transfer
  // Seconds of a worker's processor that a byte takes which it receives over it, while it sends as much: TCP copies and
  // wakes. Waiting hides it.
  double processor_time = 0;
  bool operator==(const Link&) const = default;
};

// Where nothing is said: workers of one thread each on one machine of 2026, as ./x bench step finds them. What counts
// for the choice of a plan is how these numbers stand to each other.
struct Topology {
  std::vector<Link> links;         // product of parts = workers; empty: all workers alike
  double flops = 100e9;            // floating-point operations a second of one worker
  double memory_bandwidth = 25e9;  // bytes a second that elementwise work streams
  bool operator==(const Topology&) const = default;
};

}  // namespace tesser::partition
