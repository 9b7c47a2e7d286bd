// Which nodes a job's learners run on. A pure function from a snapshot, so that a scheduler can be replaced, simulated
// and tested without a cluster.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/job/resources.h"

namespace tesser::platform {

struct WaitingJob {
  std::string id;
  std::string team;
  int priority = 50;
  std::int64_t submitted_microseconds = 0;  // since 1970
  int learners = 1;
  Resources each;
};

struct HeldPlaces {
  std::string job;
  std::string team;
  int priority = 50;
  Placement nodes;  // of each rank
  Resources each;
};

struct ClusterSnapshot {
  std::vector<Node> nodes;
  std::vector<HeldPlaces> held;
  std::vector<WaitingJob> waiting;  // in any order
};

struct PlacementDecision {
  std::string job;
  Placement nodes;         // of each rank; empty: it waits on
  std::string reason;      // why it waits, in words and numbers: "needs 4 cpus on each of 2 nodes; node2 has 1 free"
  int place_in_queue = 0;  // from 1; 0 with nodes
};

// One decision a waiting job, in the order of the queue. First come, first served; all learners or none; a job that
// does not fit keeps those behind it waiting.
std::vector<PlacementDecision> place_first_come_first_served(const ClusterSnapshot& snapshot);

// Whether the job could run if nothing else did; why not, with the largest number of learners that would fit.
std::string why_never(const WaitingJob& job, const std::vector<Node>& nodes);

}  // namespace tesser::platform
