// What learners need and nodes have.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tesser::platform {

struct Resources {
  std::int64_t millicpus = 1000;                     // thousandths of a processor
  std::int64_t memory_bytes = 0;                     // 0: as much as there is, not counted
  std::map<std::string, std::int64_t> accelerators;  // by type; absent is 0

  bool operator==(const Resources&) const = default;
};

struct Node {
  std::string name;
  Resources capacity;     // for learners: what the engine's own services need is taken off
  bool is_ready = true;   // may take learners now
  std::string not_ready;  // why not, in words
  // Is being emptied: takes no learners, and those it has are to go elsewhere.
  bool is_draining = false;
};

// The node of each rank of a job.
using Placement = std::vector<std::string>;

}  // namespace tesser::platform
