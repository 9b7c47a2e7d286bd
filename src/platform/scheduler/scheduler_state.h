// What waits and runs on a cluster, and what it holds. Internal to this folder.
//
// One thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "platform/scheduler/cluster.h"
#include "platform/scheduler/gang_placement.h"
#include "platform/scheduler/scheduler.h"

namespace tesser::platform {

inline constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();

struct ScheduledJob {
  JobRequest request;
  Gang gang;
  Amounts total{};  // of all learners
  std::size_t team = 0;
  std::size_t size = 0;  // number of what a learner asks for
};

struct ScheduledTeam {
  std::string name;
  Amounts quota{};
  Amounts owned{};  // what its owned jobs hold

  // Whether a job stays inside the quota together with what is owned, or alone.
  bool has_quota_for(const ScheduledJob& job) const { return fits_beside(owned, job); }
  bool could_own(const ScheduledJob& job) const { return fits_beside({}, job); }
  bool is_over_quota() const;

 private:
  bool fits_beside(const Amounts& held, const ScheduledJob& job) const;
};

struct RunningGang {
  ScheduledJob job;
  Seconds started = 0;
  std::vector<int> nodes;  // of each rank; -1: not there any more
  bool is_borrowed = false;
  bool is_ending = false;

  Seconds end() const { return job.request.longest > 0 ? started + job.request.longest : kNever; }
};

class SchedulerState {
 public:
  using Order = QueueOrder;
  // Borrowed jobs that may be preempted, in the order in which they are preempted: priority, latest start, id.
  using Borrowed = std::set<std::tuple<int, Seconds, std::string>>;

  SchedulerState(Cluster cluster, ResourceKinds kinds, Seconds aging)
      : cluster_(std::move(cluster)), kinds_(std::move(kinds)), aging_(aging) {}

  void add_team(const TeamQuota& quota);
  void submit(const JobRequest& request) { enqueue(job_of(request)); }
  void adopt(const RunningJob& running);
  void finish(const std::string& id);

  // A waiting job that has got places runs.
  void start(RunningGang running);
  void enqueue(ScheduledJob job);
  void dequeue(const std::string& id);
  // Its places and quota are given back; it stays among the running ones until queue_again().
  void preempt(const std::string& id);
  void queue_again(const std::string& id);
  // A borrowed job becomes owned, and the other way round.
  void own(const std::string& id);
  void lend(const std::string& id);
  // Places alone, to see what would fit without a job: given back, and taken again.
  void give_places(const RunningGang& running);
  void take_places(const RunningGang& running);

  Cluster& cluster() { return cluster_; }
  const Cluster& cluster() const { return cluster_; }
  const ResourceKinds& kinds() const { return kinds_; }
  const std::vector<ScheduledTeam>& teams() const { return teams_; }
  const ScheduledTeam& team_of(const ScheduledJob& job) const { return teams_[job.team]; }
  std::size_t sizes() const { return sizes_.size(); }
  using Queue = std::map<Order, ScheduledJob>;
  using TeamQueue = std::map<Order, const ScheduledJob*>;
  const Queue& waiting() const { return waiting_; }
  // By team: its part of waiting().
  const std::vector<TeamQueue>& waiting_of_teams() const { return waiting_of_teams_; }
  // Of waiting jobs: how many learners they have, by what each asks for.
  const std::map<Amounts, std::multiset<std::int64_t>>& waiting_gangs() const { return waiting_gangs_; }
  std::size_t running() const { return running_.size(); }
  const RunningGang& running(const std::string& id) const { return running_.at(id); }
  const std::map<std::pair<Seconds, std::string>, const RunningGang*>& ends() const { return ends_; }
  const Borrowed& borrowed() const { return borrowed_; }

 private:
  static Borrowed::value_type borrowed_key(const RunningGang& running) {
    return {running.job.request.priority, -running.started, running.job.request.id};
  }
  ScheduledJob job_of(const JobRequest& request);
  void forget(const std::string& id);

  Cluster cluster_;
  ResourceKinds kinds_;
  Seconds aging_;
  std::vector<ScheduledTeam> teams_;
  std::unordered_map<std::string, std::size_t> team_numbers_;
  bool has_quotas_ = false;
  std::map<Amounts, std::size_t> sizes_;  // of learners, numbered
  Queue waiting_;
  std::vector<TeamQueue> waiting_of_teams_;
  std::unordered_map<std::string, Order> orders_;  // of waiting jobs
  std::map<Amounts, std::multiset<std::int64_t>> waiting_gangs_;
  std::unordered_map<std::string, RunningGang> running_;
  std::map<std::pair<Seconds, std::string>, const RunningGang*> ends_;
  Borrowed borrowed_;
};

}  // namespace tesser::platform
