// Who runs what, where and when ("FfDL", Middleware 2019, sections 3.5 and 3.6): gangs, team quotas with borrowing and
// preemption, priorities, and backfill that never delays the job it passes.
//
// The rules, in the order in which they are applied in each round:
//  1. Learners on nodes that are being drained go: their job halts with a checkpoint and waits again. Where a team's
//     owned jobs hold more than its quota, because that has become smaller, those that started last are lent from now.
//  2. Jobs are taken by priority, which grows with the time they wait, then by the time of submission. A job is owned
//     when it stays inside its team's quota together with the team's other owned jobs; while one of a team's jobs
//     waits for quota, those behind it are not owned.
//  3. An owned job gets places for all its learners or none. Where there is no room, jobs that run on borrowed capacity
//     are preempted, of the lowest priority and the latest start first, and only as many as are needed.
//  4. The first owned job that still waits gets a reservation: the earliest time at which it fits if every job before
//     it runs as long as it may, and nodes then. Nothing that starts now may take those nodes from it at that time.
//  5. Jobs over quota come after all owned ones and run on what is left, borrowed; the first of them that waits gets a
//     reservation when no owned job has one.
//  6. Borrowed jobs become owned while their team's quota has room for them.
//
// Reasons are for the job's owner: they name jobs of the same team, and of other teams no more than the team.
//
// Values in, values out: nothing here knows a clock, a store or an engine. One thread per object. Repeatable for a
// seed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "platform/job/resources.h"
#include "platform/scheduler/gang_placement.h"

namespace tesser::platform {

// Seconds since any fixed time; a simulation's begin at 0.
using Seconds = double;

struct TeamQuota {
  std::string team;
  Resources quota;  // a kind with 0 is not bounded
};

struct JobRequest {
  std::string id;
  std::string team;  // one without a quota of its own has none: it only borrows where any team has a quota
  int priority = 50;
  Seconds submitted = 0;
  std::int64_t learners = 1;
  Resources each;
  Seconds longest = 0;  // it ends after so many seconds at the latest; 0: nobody knows
};

struct RunningJob {
  JobRequest job;
  Seconds started = 0;
  Placement nodes;  // of each rank
  bool is_borrowed = false;
  // Is on its way out (preempted, or halted by its owner): what it holds counts as free for those placed now, who wait
  // for its end.
  bool is_leaving = false;
  // Its commands have ended and its results are being stored: it keeps its places to its end, which is near.
  bool is_ending = false;
};

struct SchedulerSettings {
  PlacementSettings placement;
  bool borrow = true;
  bool preempt = true;
  bool backfill = true;
  // A job that waits so long comes before one of one more priority; 0: priorities alone decide.
  Seconds aging = 600;
  // So many waiting jobs are looked at in a round, and of each team its share of as many; the others wait behind them.
  std::size_t depth = 1000;
};

enum class DecisionKind : std::uint8_t {
  kStart,    // `nodes`: of each rank
  kPreempt,  // halt with a checkpoint, queue again
  kOwn,      // runs on, no longer borrowed
  kLend,     // runs on, borrowed from now on
  kWait,
};

struct Decision {
  DecisionKind kind = DecisionKind::kWait;
  std::string job;
  Placement nodes;           // kStart
  bool is_borrowed = false;  // kStart
  // kStart: these leave first. kPreempt: for this one; empty for a drained node.
  std::vector<std::string> other_jobs;
  std::string reason;               // in words and numbers, for kWait and kPreempt
  std::int64_t place_in_queue = 0;  // kWait: from 1
  // kWait, of the job with the reservation: it starts then at the latest, if others run no longer than they may.
  std::optional<Seconds> starts_by;
};

// Jobs that wait, in the order in which they are looked at: earlier is smaller. What grows with waiting grows for all
// alike, so the order of two jobs never changes.
using QueueOrder = std::tuple<double, Seconds, std::string>;
QueueOrder queue_order(const JobRequest& job, Seconds aging);

// Keeps a cluster's state from round to round, for simulations; what it decides it has carried out on its own state
// when decide() returns (jobs started and preempted, the latter waiting again).
class Scheduler {
 public:
  // kInvalidInput: two nodes or teams with one name, too many types of accelerators.
  static Result<std::unique_ptr<Scheduler>> create(const std::vector<Node>& nodes, const std::vector<TeamQuota>& teams,
                                                   const SchedulerSettings& settings);
  virtual ~Scheduler() = default;

  // A job that waits; the id must be new.
  virtual void submit(const JobRequest& job) = 0;
  // A job that runs already. Nodes that are not there any more are left out.
  virtual void adopt(const RunningJob& job) = 0;
  // A running or waiting job is over.
  virtual void finish(const std::string& job) = 0;

  // One round. With `explain`, a decision kWait with its reason for every job that waits on; without, none.
  virtual std::vector<Decision> decide(Seconds now, bool explain = true) = 0;

  virtual std::size_t waiting() const = 0;
  virtual std::size_t running() const = 0;
};

// One round over a snapshot.
struct SchedulerSnapshot {
  Seconds now = 0;
  std::vector<Node> nodes;
  std::vector<TeamQuota> teams;
  std::vector<RunningJob> running;
  std::vector<JobRequest> waiting;  // in any order
};
Result<std::vector<Decision>> schedule(const SchedulerSnapshot& snapshot, const SchedulerSettings& settings,
                                       bool explain = true);

}  // namespace tesser::platform
