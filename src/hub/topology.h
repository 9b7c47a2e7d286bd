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

// Whether so many threads, all busy, have a processor each.
bool has_processors_for(std::int64_t threads);

// Of this machine, for people; as hubs and workers tell each other.
std::string host_name();

// -1: wherever the system puts it. Does nothing where the system refuses.
void pin_this_thread(int processor);

}  // namespace tesser::hub
