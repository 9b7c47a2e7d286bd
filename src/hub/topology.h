// The processors of this machine, for pinning a hub's cores: those of one socket together (Parameter Hub, section 3.2).
#pragma once

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

// -1: wherever the system puts it. Does nothing where the system refuses.
void pin_this_thread(int processor);

}  // namespace tesser::hub
