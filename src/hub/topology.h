// This machine: its name, and its processors, for pinning a hub's cores: those of one socket together (Parameter Hub,
// section 3.2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::hub {

struct Processor {
  int number = 0;  // as the system counts
  int core = 0;    // hardware core; two processors of one share its units
  int socket = 0;
};

// Those that this process may use, one of each hardware core first, socket by socket.
Result<std::vector<Processor>> processors();

// "0-3,8": the numbers; "": one for each hardware core. "4" without comma or dash is one processor. kInvalidInput for
// what is no list, or names a processor that this process may not use.
Result<std::vector<Processor>> choose_processors(const std::string& list);

// An adapter for RDMA.
struct Adapter {
  std::string name;  // "mlx5_0"
  std::vector<int> ports;
  int socket = -1;  // that it hangs on; -1: on none
};

Result<std::vector<Adapter>> adapters();

// Those that hang on a socket of one of the processors, or on none, as UCX_NET_DEVICES has them: "mlx5_0:1,mlx5_1:1".
// So a hub whose cores are of one socket takes gradients in through adapters of it, and none crosses to the other.
// Empty, which is all, where that leaves none out or none over.
std::string adapters_near(const std::vector<Adapter>& adapters, const std::vector<Processor>& processors);

// Whether so many threads, all busy, have a processor each.
bool has_processors_for(std::int64_t threads);

// Of this machine, for people; as hubs and workers tell each other.
std::string host_name();

// -1: wherever the system puts it. Does nothing where the system refuses.
void pin_this_thread(int processor);

}  // namespace tesser::hub
