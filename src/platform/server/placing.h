// From jobs and nodes as they are to what is done next: the scheduler's decisions as the store carries them out, and
// why everybody else waits. Pure: no clock, no store, no engine. Internal to this folder.
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/scheduler/scheduler.h"
#include "platform/server/engine_worker.h"
#include "platform/server/live_jobs.h"
#include "platform/store/store.h"

namespace tesser::platform {

// Why a job waits, and where in the queue.
struct WaitingPlaceInQueue {
  std::string reason;
  std::int64_t place = 0;      // from 1
  std::int64_t starts_by = 0;  // microseconds since 1970; 0: nobody knows
};

struct QueuedJob {
  std::string id;
  std::string team;
};

struct PlacingQuestion {
  std::int64_t time = 0;  // microseconds since 1970
  EngineView engine;
  bool system_places = false;  // the engine's system chooses the nodes, and who waits for them
  std::set<std::string> draining;
  std::map<std::string, Resources> quotas;
  std::set<std::string> ending;  // jobs that wait, but whose guardian is still at its end
  bool explains = true;
};

struct Placing {
  std::vector<SchedulingStep> steps;
  // Of all who wait on, when the question explains.
  std::unordered_map<std::string, WaitingPlaceInQueue> waiting;
  std::vector<QueuedJob> queue;  // the same jobs, by their place
  std::string trouble;           // nobody can be placed; empty: none
};

// A job whose places others are giving back waits until they have: what is there then is decided anew.
Placing find_places(const LiveJobs& jobs, const PlacingQuestion& question, const SchedulerSettings& settings);

}  // namespace tesser::platform
