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
  double bandwidth = 10e9;  // bytes a second that one worker receives over it
  double latency = 5e-6;    // seconds a transfer
  bool operator==(const Link&) const = default;
};

struct Topology {
  std::vector<Link> links;         // product of parts = workers; empty: all workers alike
  double flops = 50e9;             // floating-point operations a second of one worker
  double memory_bandwidth = 10e9;  // bytes a second that elementwise work streams
  bool operator==(const Topology&) const = default;
};

}  // namespace tesser::partition
