#include "platform/scheduler/scheduler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "platform/job/resources_text.h"
#include "platform/scheduler/reservation.h"

namespace tesser::platform {
namespace {

constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();

struct Job {
  JobRequest request;
  Gang gang;
  Amounts total{};  // of all learners
  int team = 0;
  std::size_t size = 0;  // number of what a learner asks for
};

struct Team {
  std::string name;
  Amounts quota{};
  Amounts owned{};  // what its owned jobs hold
};

struct Running {
  Job job;
  Seconds started = 0;
  std::vector<int> nodes;  // of each rank; -1: not there any more
  bool is_borrowed = false;

  Seconds end() const { return job.request.longest > 0 ? started + job.request.longest : kNever; }
};

bool fits_into(const Amounts& all, const Amounts& held, const Amounts& more) {
  for (std::size_t kind = 0; kind < kMostKinds; ++kind) {
    if (more[kind] > 0 && held[kind] + more[kind] > all[kind]) {
      return false;
    }
  }
  return true;
}

std::string time_text(Seconds seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  if (whole < 120) {
    return fmt::format("{} s", whole);
  }
  return whole < 7200 ? fmt::format("{} min", whole / 60) : fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

// Earlier is smaller. What grows with waiting grows for all alike, so the order of two jobs never changes.
using Order = std::tuple<double, Seconds, std::string>;

class GangScheduler final : public Scheduler {
 public:
  GangScheduler(Cluster cluster, ResourceKinds kinds, const SchedulerSettings& settings)
      : cluster_(std::move(cluster)), kinds_(std::move(kinds)), settings_(settings), random_(settings.placement.seed) {}

  void add_team(const TeamQuota& quota) {
    team_numbers_.emplace(quota.team, static_cast<int>(teams_.size()));
    teams_.push_back({quota.team, kinds_.bounded(quota.quota), {}});
    has_quotas_ = true;
  }

  void submit(const JobRequest& request) override { enqueue(job_of(request)); }

  void adopt(const RunningJob& running) override {
    if (running.is_leaving) {
      return;
    }
    Running entry{job_of(running.job), running.started, {}, running.is_borrowed};
    for (const std::string& name : running.nodes) {
      entry.nodes.push_back(cluster_.node_named(name));
    }
    hold(std::move(entry));
  }

  void finish(const std::string& id) override {
    if (orders_.count(id) != 0) {
      dequeue(id);
    } else if (const auto running = running_.find(id); running != running_.end()) {
      release(running->second);
      forget(running);
    }
  }

  std::vector<Decision> decide(Seconds now, bool explain) override;

  std::size_t waiting() const override { return waiting_.size(); }
  std::size_t running() const override { return running_.size(); }

 private:
  using RunningJobs = std::unordered_map<std::string, Running>;

  Job job_of(const JobRequest& request) {
    Job job;
    job.request = request;
    job.gang = {request.learners, kinds_.asked(request.each)};
    job.total = job.gang.each * request.learners;
    const auto [team, is_new] = team_numbers_.emplace(request.team, static_cast<int>(teams_.size()));
    if (is_new) {  // without a quota: nothing of its own where others have one
      Team unknown{request.team, {}, {}};
      if (!has_quotas_) {
        unknown.quota = kinds_.bounded({0, 0, {}});
      }
      teams_.push_back(unknown);
    }
    job.team = team->second;
    job.size = sizes_.emplace(job.gang.each, sizes_.size()).first->second;
    return job;
  }

  Order order_of(const JobRequest& request) const {
    const double priority = request.priority - (settings_.aging > 0 ? request.submitted / settings_.aging : 0.0);
    return {-priority, request.submitted, request.id};
  }

  void enqueue(Job job) {
    const Order order = order_of(job.request);
    const bool is_new = orders_.emplace(job.request.id, order).second && running_.count(job.request.id) == 0;
    TESSER_CHECK(is_new, "job " + job.request.id + " twice");
    waiting_gangs_[job.gang.each].insert(job.gang.learners);
    waiting_.emplace(order, std::move(job));
  }

  void dequeue(const std::string& id) {
    const auto order = orders_.find(id);
    const auto job = waiting_.find(order->second);
    const auto gangs = waiting_gangs_.find(job->second.gang.each);
    gangs->second.erase(gangs->second.find(job->second.gang.learners));
    if (gangs->second.empty()) {
      waiting_gangs_.erase(gangs);
    }
    waiting_.erase(job);
    orders_.erase(order);
  }

  Team& team_of(const Job& job) { return teams_[static_cast<std::size_t>(job.team)]; }

  // Takes places and quota.
  void hold(Running running) {
    for (const int node : running.nodes) {
      if (node >= 0) {
        cluster_.take(node, running.job.gang.each);
      }
    }
    if (!running.is_borrowed) {
      team_of(running.job).owned += running.job.total;
    }
    const std::string id = running.job.request.id;
    const auto [entry, is_new] = running_.emplace(id, std::move(running));
    TESSER_CHECK(is_new, "job " + id + " runs twice");
    ends_.emplace(std::pair(entry->second.end(), id), &entry->second);
    if (entry->second.is_borrowed) {
      borrowed_.emplace(std::tuple(entry->second.job.request.priority, -entry->second.started, id));
    }
  }

  // Gives places back.
  void release(const Running& running) {
    for (const int node : running.nodes) {
      if (node >= 0) {
        cluster_.give(node, running.job.gang.each);
      }
    }
  }
  void retake(const Running& running) {
    for (const int node : running.nodes) {
      if (node >= 0) {
        cluster_.take(node, running.job.gang.each);
      }
    }
  }

  // Gives quota back.
  void forget(RunningJobs::iterator running) {
    Running& entry = running->second;
    if (entry.is_borrowed) {
      borrowed_.erase(std::tuple(entry.job.request.priority, -entry.started, running->first));
    } else {
      team_of(entry.job).owned -= entry.job.total;
    }
    ends_.erase(std::pair(entry.end(), running->first));
    running_.erase(running);
  }

  struct Round;
  void evict(Round& round);
  bool start(Round& round, const Job& job, bool borrows);
  std::optional<std::vector<int>> places_for(Round& round, const Job& job);
  std::optional<std::vector<int>> places_after_preemption(Round& round, const Job& job, std::vector<std::string>& gone);
  void preempt(Round& round, const std::string& id, const std::string& for_job, const std::string& reason);
  void reserve(Round& round, const Job& job);
  void own_borrowed(Round& round);
  bool nothing_fits() const;
  std::string why_no_room(const Round& round, const Job& job);

  Cluster cluster_;
  ResourceKinds kinds_;
  SchedulerSettings settings_;
  RandomNumbers random_;
  std::vector<Team> teams_;
  std::unordered_map<std::string, int> team_numbers_;
  bool has_quotas_ = false;
  std::map<Amounts, std::size_t> sizes_;  // of learners, numbered
  std::map<Order, Job> waiting_;
  std::unordered_map<std::string, Order> orders_;  // of waiting jobs
  // Of waiting jobs: how many learners they have, by what each asks for.
  std::map<Amounts, std::multiset<std::int64_t>> waiting_gangs_;
  RunningJobs running_;
  std::map<std::pair<Seconds, std::string>, const Running*> ends_;
  // Borrowed jobs in the order in which they are preempted.
  std::set<std::tuple<int, Seconds, std::string>> borrowed_;
};

struct GangScheduler::Round {
  Seconds now = 0;
  std::vector<Decision> decisions;
  std::optional<Reservation> reservation;
  std::string reserved_for;
  std::vector<bool> waits_for_quota;  // of each team: one of its jobs does
  // Of each size of learners the smallest gang that found no room, where the reservation did not concern it, where it
  // did, and with all that could be preempted.
  enum Way : std::uint8_t { kFree, kConcerned, kPreempting };
  std::vector<std::array<std::int64_t, 3>> too_many;

  bool is_too_many(const Job& job, Way way) const { return job.gang.learners >= too_many[job.size][way]; }
  void found_no_room(const Job& job, Way way) { too_many[job.size][way] = job.gang.learners; }
  void forget_failures(std::size_t sizes) {
    constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
    too_many.assign(sizes, {kAny, kAny, kAny});
  }

  bool concerns(const Job& job) const {
    return reservation && reservation->concerns(job.request.longest > 0 ? now + job.request.longest : kNever);
  }
};

std::vector<Decision> GangScheduler::decide(Seconds now, bool explain) {
  Round round;
  round.now = now;
  round.forget_failures(sizes_.size());
  evict(round);
  if (!explain && borrowed_.empty() && nothing_fits()) {
    return std::move(round.decisions);
  }
  struct Left {
    const Job* job = nullptr;
    bool is_over_quota = false;
    std::string reason;
  };
  std::vector<Left> left;
  std::vector<Order> started;
  std::size_t looked_at = 0;
  bool head_waits = false;  // without backfill nobody passes it
  round.waits_for_quota.resize(teams_.size());
  for (const auto& [order, job] : waiting_) {
    if (looked_at++ == settings_.depth) {
      break;
    }
    Team& team = team_of(job);
    const auto number = static_cast<std::size_t>(job.team);
    const bool is_owned = !round.waits_for_quota[number] && fits_into(team.quota, team.owned, job.total);
    if (!is_owned) {
      // One that no quota of its team can hold waits for none.
      round.waits_for_quota[number] = round.waits_for_quota[number] || fits_into(team.quota, {}, job.total);
      left.push_back({&job, true, {}});
    } else if (!head_waits && start(round, job, false)) {
      started.push_back(order);
    } else {
      if (!round.reservation) {
        reserve(round, job);
      }
      left.push_back({&job, false, explain ? why_no_room(round, job) : ""});
      head_waits = !settings_.backfill;
    }
  }
  for (Left& each : left) {
    if (!each.is_over_quota) {
      continue;
    }
    if (settings_.borrow && !head_waits && start(round, *each.job, true)) {
      started.push_back(order_of(each.job->request));
      each.job = nullptr;
      continue;
    }
    if (!round.reservation && settings_.borrow) {
      reserve(round, *each.job);
      head_waits = !settings_.backfill;
    }
    if (explain) {
      each.reason = fmt::format("team {} is at its quota; {}", team_of(*each.job).name,
                                settings_.borrow ? why_no_room(round, *each.job) : "it may not borrow");
    }
  }
  own_borrowed(round);
  if (explain) {
    std::int64_t place = 0;
    std::unordered_map<const Job*, const Left*> reasons;
    for (const Left& each : left) {
      reasons.emplace(each.job, &each);
    }
    const std::set<Order> gone(started.begin(), started.end());
    for (const auto& [order, job] : waiting_) {
      if (gone.count(order) != 0) {
        continue;
      }
      const auto found = reasons.find(&job);
      Decision wait;
      wait.job = job.request.id;
      wait.place_in_queue = ++place;
      if (round.reservation && round.reserved_for == wait.job && std::isfinite(round.reservation->time())) {
        wait.starts_by = round.reservation->time();
      }
      wait.reason =
          found != reasons.end() ? found->second->reason : fmt::format("{} jobs are before it in the queue", place - 1);
      round.decisions.push_back(std::move(wait));
    }
  }
  for (const Order& order : started) {
    dequeue(std::get<2>(order));
  }
  // Those that were preempted wait again, from the next round on.
  for (const Decision& decision : round.decisions) {
    if (decision.kind == DecisionKind::kPreempt) {
      const auto entry = running_.find(decision.job);
      Job job = entry->second.job;
      forget(entry);
      enqueue(std::move(job));
    }
  }
  return std::move(round.decisions);
}

// Not even the smallest gang that waits.
bool GangScheduler::nothing_fits() const {
  return std::none_of(waiting_gangs_.begin(), waiting_gangs_.end(), [&](const auto& gangs) {
    return gang_fits(cluster_, {*gangs.second.begin(), gangs.first});
  });
}

void GangScheduler::evict(Round& round) {
  if (!cluster_.drains()) {
    return;
  }
  std::vector<std::pair<std::string, int>> leaving;
  for (const auto& [end, running] : ends_) {
    for (const int node : running->nodes) {
      if (node >= 0 && cluster_.is_draining(node)) {
        leaving.emplace_back(running->job.request.id, node);
        break;
      }
    }
  }
  for (const auto& [id, node] : leaving) {
    preempt(round, id, "", fmt::format("{} is being emptied", cluster_.name(node)));
  }
}

bool GangScheduler::start(Round& round, const Job& job, bool borrows) {
  std::vector<std::string> gone;
  std::optional<std::vector<int>> nodes = places_for(round, job);
  if (!nodes && !borrows && settings_.preempt) {
    nodes = places_after_preemption(round, job, gone);
  }
  if (!nodes) {
    return false;
  }
  if (round.concerns(job)) {
    for (const int node : *nodes) {
      round.reservation->taken(node, job.gang.each);
    }
  }
  Decision decision;
  decision.kind = DecisionKind::kStart;
  decision.job = job.request.id;
  decision.is_borrowed = borrows;
  decision.other_jobs = std::move(gone);
  for (const int node : *nodes) {
    decision.nodes.push_back(cluster_.name(node));
  }
  round.decisions.push_back(std::move(decision));
  hold({job, round.now, std::move(*nodes), borrows});
  return true;
}

std::optional<std::vector<int>> GangScheduler::places_for(Round& round, const Job& job) {
  const bool is_concerned = round.concerns(job);
  const Round::Way way = is_concerned ? Round::kConcerned : Round::kFree;
  if (round.is_too_many(job, way)) {
    return std::nullopt;
  }
  std::optional<std::vector<int>> nodes;
  if (is_concerned) {
    const Reservation::Shade shade(*round.reservation, cluster_);
    nodes = place_gang(cluster_, job.gang, settings_.placement, random_);
  } else {
    nodes = place_gang(cluster_, job.gang, settings_.placement, random_);
  }
  if (!nodes) {
    round.found_no_room(job, way);
  }
  return nodes;
}

std::optional<std::vector<int>> GangScheduler::places_after_preemption(Round& round, const Job& job,
                                                                       std::vector<std::string>& gone) {
  if (borrowed_.empty() || round.is_too_many(job, Round::kPreempting)) {
    return std::nullopt;
  }
  const auto fits = [&] {
    if (!round.concerns(job)) {
      return gang_fits(cluster_, job.gang);
    }
    const Reservation::Shade shade(*round.reservation, cluster_);
    return gang_fits(cluster_, job.gang);
  };
  const auto give = [&](const Running& running) {
    release(running);
    if (round.concerns(running.job)) {
      for (const int node : running.nodes) {
        round.reservation->given(node, running.job.gang.each);
      }
    }
  };
  const auto take_back = [&](const Running& running) {
    retake(running);
    if (round.concerns(running.job)) {
      for (const int node : running.nodes) {
        round.reservation->taken(node, running.job.gang.each);
      }
    }
  };
  std::vector<const Running*> victims;
  bool enough = false;
  for (auto entry = borrowed_.begin(); !enough && entry != borrowed_.end(); ++entry) {
    const Running& running = running_.at(std::get<2>(*entry));
    give(running);
    victims.push_back(&running);
    enough = fits();
  }
  // Those that are not needed stay, beginning with the one that would have stayed longest.
  for (auto victim = victims.end(); enough && victim != victims.begin();) {
    --victim;
    take_back(**victim);
    if (fits()) {
      victim = victims.erase(victim);
    } else {
      give(**victim);
    }
  }
  if (!enough) {
    for (const Running* victim : victims) {
      take_back(*victim);
    }
    round.found_no_room(job, Round::kPreempting);
    return std::nullopt;
  }
  for (const Running* victim : victims) {
    gone.push_back(victim->job.request.id);
    retake(*victim);  // preempt() gives it back
    preempt(round, gone.back(), job.request.id,
            fmt::format("runs on capacity that team {} owns and needs for {}", team_of(job).name, job.request.id));
  }
  return places_for(round, job);
}

void GangScheduler::preempt(Round& round, const std::string& id, const std::string& for_job,
                            const std::string& reason) {
  Running& running = running_.at(id);
  release(running);
  running.nodes.clear();
  if (running.is_borrowed) {
    borrowed_.erase(std::tuple(running.job.request.priority, -running.started, id));
  } else {
    team_of(running.job).owned -= running.job.total;
    running.is_borrowed = true;  // what it held of the quota is given back
  }
  Decision decision;
  decision.kind = DecisionKind::kPreempt;
  decision.job = id;
  if (!for_job.empty()) {
    decision.other_jobs.push_back(for_job);
  }
  decision.reason = reason;
  round.decisions.push_back(std::move(decision));
  round.forget_failures(sizes_.size());
}

void GangScheduler::reserve(Round& round, const Job& job) {
  auto next = ends_.begin();
  round.reservation = Reservation::make(cluster_, job.gang, round.now, [&]() -> std::optional<Release> {
    if (next == ends_.end()) {
      return std::nullopt;
    }
    const Running& running = *next->second;
    ++next;
    return Release{running.end(), &running.nodes, &running.job.gang.each};
  });
  if (round.reservation) {
    round.reserved_for = job.request.id;
  }
}

void GangScheduler::own_borrowed(Round& round) {
  // The job that started first is owned first.
  std::vector<std::tuple<Seconds, std::string>> in_order;
  for (const auto& [priority, started, id] : borrowed_) {
    in_order.emplace_back(-started, id);
  }
  std::sort(in_order.begin(), in_order.end());
  for (const auto& [started, id] : in_order) {
    Running& running = running_.at(id);
    Team& team = team_of(running.job);
    const auto number = static_cast<std::size_t>(running.job.team);
    const bool is_kept = number < round.waits_for_quota.size() && round.waits_for_quota[number];
    if (!is_kept && fits_into(team.quota, team.owned, running.job.total)) {
      borrowed_.erase(std::tuple(running.job.request.priority, -running.started, id));
      running.is_borrowed = false;
      team.owned += running.job.total;
      Decision decision;
      decision.kind = DecisionKind::kOwn;
      decision.job = id;
      round.decisions.push_back(std::move(decision));
    }
  }
}

std::string GangScheduler::why_no_room(const Round& round, const Job& job) {
  std::int64_t fits = 0;
  for (const auto& [key, members] : cluster_.classes()) {
    fits += learners_that_fit(key.free, job.gang.each, job.gang.learners) * static_cast<std::int64_t>(members.size());
  }
  fits = std::min(fits, job.gang.learners);
  const std::string needs = needs_text(job.request.learners, job.request.each);
  const std::string now =
      fmt::format("{}; {} fit{} now", needs, fits == 0 ? "none" : std::to_string(fits), fits == 1 ? "s" : "");
  if (!round.reservation) {
    return now + "; the nodes that are ready could not hold it even without other jobs";
  }
  if (round.reserved_for != job.request.id) {
    return fits == job.gang.learners
               ? fmt::format("{}, and there is room; but it would keep {} waiting, which comes first", needs,
                             round.reserved_for)
               : fmt::format("{}; {} comes first", now, round.reserved_for);
  }
  const Seconds time = round.reservation->time();
  return std::isfinite(time) ? fmt::format("{}; starts in {} at the latest", now, time_text(time - round.now))
                             : now + "; is next, and places are kept for it as they become free";
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::create(const std::vector<Node>& nodes,
                                                     const std::vector<TeamQuota>& teams,
                                                     const SchedulerSettings& settings) {
  std::set<std::string> names;
  for (const Node& node : nodes) {
    if (!names.insert(node.name).second) {
      return invalid_input(fmt::format("two nodes are named '{}'", node.name));
    }
  }
  names.clear();
  for (const TeamQuota& team : teams) {
    if (!names.insert(team.team).second) {
      return invalid_input(fmt::format("team '{}' has two quotas", team.team));
    }
  }
  TESSER_ASSIGN_OR_RETURN(ResourceKinds kinds, ResourceKinds::of(nodes));
  Cluster cluster(nodes, kinds);
  auto scheduler = std::make_unique<GangScheduler>(std::move(cluster), std::move(kinds), settings);
  for (const TeamQuota& team : teams) {
    scheduler->add_team(team);
  }
  return scheduler;
}

Result<std::vector<Decision>> schedule(const SchedulerSnapshot& snapshot, const SchedulerSettings& settings) {
  TESSER_ASSIGN_OR_RETURN(const auto scheduler, Scheduler::create(snapshot.nodes, snapshot.teams, settings));
  for (const RunningJob& job : snapshot.running) {
    scheduler->adopt(job);
  }
  for (const JobRequest& job : snapshot.waiting) {
    scheduler->submit(job);
  }
  return scheduler->decide(snapshot.now);
}

}  // namespace tesser::platform
