// A parameter hub: a server that takes gradients of many jobs in, each job isolated from the others, and gives weights
// out (docs/hub.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::hub {

struct HubOptions {
  std::string listen = "127.0.0.1:0";          // for requests; transport listens on ports of the same address
  std::string token;                           // every request must carry it or a tenant's; empty: none is needed
  std::map<std::string, std::string> tenants;  // by token: the name of whose it is; who has none of these is one more
  int jobs = 256;                              // that run or gather at once
  int tenant_jobs = 32;             // likewise, of one tenant; of the one more where there are no others: `jobs`
  std::uint64_t tenant_memory = 0;  // bytes that one tenant's jobs may take here together; 0: no limit
  std::string processors;           // "0-3,8": one core of the hub on each; empty: one for each hardware core
  bool pins = true;                 // else the cores run wherever the system puts them
  std::uint64_t job_memory = 0;     // bytes that one job may take here; 0: no limit
  std::string other_hubs;           // hosts that it connects to where a job has several hubs (hub_hosts.h)
  double job_bandwidth = 0;         // bytes of gradients and weights a second of one job; 0: no limit
  bool through_network = false;     // never shared memory, for tests
  bool huge_pages = true;           // for weights, optimizer state and inboxes, where the system has them
  // A job that has not begun ends when nobody has been connected for so long: requests alone keep nothing here.
  std::chrono::milliseconds patience{60'000};
  std::function<void(const std::string&)> log = [](const std::string&) {};  // a line an event; any thread
};

class Hub {
 public:
  static Result<std::unique_ptr<Hub>> open(HubOptions options);
  virtual ~Hub() = default;  // ends all jobs

  // "http://HOST:PORT"
  virtual std::string url() const = 0;
  // For people: the processors of its cores, and what pages its memory has.
  virtual std::string describe() const = 0;
};

}  // namespace tesser::hub
