// Machines on which a coordinator starts workers through a launcher such as ssh.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/worker_process.h"

namespace tesser::runtime {

// One entry for each place of a worker, in order. `text` is a list "a,b,b" or, where there is a file of that name, its
// lines "HOST [PLACES]", in which # begins a comment.
Result<std::vector<std::string>> read_hosts(const std::string& text);

// The address of this machine by which each host reaches it, by place. Where some lead over the loopback and others do
// not, no host is given a loopback address, as workers tell each other the address that leads to the coordinator.
// kInvalidInput naming a host that this machine does not know.
Result<std::vector<std::string>> addresses_towards(const std::vector<std::string>& hosts);

struct RemoteWorker {
  std::vector<std::string> launcher;  // followed by the host and a command: {"ssh", "-o", "BatchMode=yes"}
  std::string host;
  std::string program;  // path of tesser there
  std::string url;      // of the coordinator
  int worker = 0;
  std::string token;
};

// The process that starts such a worker and lives as long as it does. What runs on the host is a shell, whose script
// comes through its standard input, so that no command line shows the token; when that input is closed, as it is when
// this process ends or the connection breaks, the script kills the worker.
ProcessOptions process_of(const RemoteWorker& worker);

}  // namespace tesser::runtime
