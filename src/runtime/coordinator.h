// Trains one program on many workers (docs/runtime.md, runs of several workers): plans, lowers, starts the workers or
// waits for them, leads them from step to step, and reports as a run of one worker does.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/distributed_plan.h"
#include "runtime/train.h"

namespace tesser::runtime {

struct DistributedOptions {
  PlanChoice plan;                 // of each replica
  std::optional<std::string> hub;  // http://HOST:PORT of a hub for replicas to meet in; else one in this process
  std::string hub_token;           // of that hub; empty: none
  bool external = false;           // somebody else starts the workers; else this process does, on this machine
  // Where the coordinator listens for them; empty: 127.0.0.1, or with hosts the address that leads to them.
  std::string listen;
  std::vector<std::string> hosts;  // this process starts the workers there, one at each; empty: on this machine
  std::vector<std::string> launcher{"ssh", "-o", "BatchMode=yes"};  // starts a command on a host
  std::string remote_program;                                       // path of tesser on the hosts; empty: as here
  bool network = false;  // tensors travel by RDMA or TCP even between workers on one machine
  // For logs, and for traces, which workers write there. A temporary one if not given.
  std::optional<std::filesystem::path> run_directory;
  std::optional<std::filesystem::path> trace;  // file for what each worker did in the last steps (Chrome's format)
};

// As train(), on `distributed.plan.workers` workers, or with TrainOptions::replicas on as many times that;
// TrainOptions::threads are those of each worker (0: the machine's processors shared out). A worker that fails, dies or
// stops ends the run within 5 seconds with kFailed and its name; complete checkpoints are kept. Call it on the thread
// that lives as long as the process: local workers end with it.
Result<TrainEnd> train_distributed(const TrainOptions& options, const DistributedOptions& distributed,
                                   TrainReporter& reporter, const std::atomic<bool>& stop);

}  // namespace tesser::runtime
