// Replays a trace over a described cluster.
//
// One thread. Repeatable: the same input gives the same report, but for the time that deciding took.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "platform/scheduler/scheduler.h"
#include "platform/scheduler/trace.h"

namespace tesser::platform {

struct SimulationSettings {
  int nodes = 8;
  std::int64_t accelerators_per_node = 8;
  std::int64_t accelerators_per_learner = 1;
  // All learners of a job or none; else learners are placed one by one, each as soon as there is room for it, and hold
  // their places while they wait for the others, as a scheduler of single pods does.
  bool gang = true;
  SchedulerSettings scheduler;
  std::vector<TeamQuota> teams;     // with gang alone
  bool run_times_are_known = true;  // for reservations; else no job's end is
  double halt_seconds = 30;         // from a preemption until its places are free
  // Without gang: a job that has held some places for so long without starting gives them back and goes to the end of
  // the queue; 0: never.
  double patience_seconds = 3600;
};

struct SimulationReport {
  std::size_t jobs = 0;
  std::size_t finished = 0;
  std::size_t never_fit = 0;  // larger than the cluster; left out
  std::size_t stuck = 0;      // never finished: jobs held each other's places
  std::size_t preemptions = 0;
  std::size_t given_up = 0;  // times that places were given back for want of the others
  // Accelerators held by jobs that did not run, for how long; hours.
  double idle_held_hours = 0;
  double used_hours = 0;
  double utilization = 0;  // used, of all accelerators until the last job ended
  double makespan_seconds = 0;
  // Of each job, the time from submission to its end that it did not run; sorted, seconds.
  std::vector<double> waits;
  std::uint64_t decisions = 0;  // jobs that were started, preempted or given a reason to wait on
  double deciding_seconds = 0;

  double wait_percentile(double part) const;  // 0.5: the median
};

SimulationReport simulate(const std::vector<TraceJob>& trace, const SimulationSettings& settings);

}  // namespace tesser::platform
