#include "platform/scheduler/scheduling_round.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "platform/job/resources_text.h"

namespace tesser::platform {
namespace {

std::string time_text(Seconds seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  if (whole < 120) {
    return fmt::format("{} s", whole);
  }
  return whole < 7200 ? fmt::format("{} min", whole / 60) : fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::vector<Decision> SchedulingRound::decide(bool explain) {
  empty_draining_nodes();
  lend_beyond_quota();
  if (explain || !state_.borrowed().empty() || !nothing_fits()) {
    look_at_owned(explain);
    look_at_borrowers(explain);
    own_borrowed();
    if (explain) {
      explain_waiting();
    }
  }
  carry_out();
  return std::move(decisions_);
}

void SchedulingRound::empty_draining_nodes() {
  const Cluster& cluster = state_.cluster();
  if (!cluster.drains()) {
    return;
  }
  std::vector<std::pair<std::string, int>> leaving;
  for (const auto& [end, running] : state_.ends()) {
    for (const int node : running->nodes) {
      if (node >= 0 && cluster.is_draining(node) && !running->is_ending) {
        leaving.emplace_back(running->job.request.id, node);
        break;
      }
    }
  }
  for (const auto& [id, node] : leaving) {
    preempt(id, "", fmt::format("{} is being emptied", cluster.name(node)));
  }
}

void SchedulingRound::lend_beyond_quota() {
  const auto& teams = state_.teams();
  if (std::none_of(teams.begin(), teams.end(), [](const ScheduledTeam& team) { return team.is_over_quota(); })) {
    return;
  }
  std::vector<std::tuple<Seconds, std::string>> latest_first;
  for (const auto& [end, running] : state_.ends()) {
    if (!running->is_borrowed && state_.team_of(running->job).is_over_quota()) {
      latest_first.emplace_back(-running->started, running->job.request.id);
    }
  }
  std::sort(latest_first.begin(), latest_first.end());
  for (const auto& [started, id] : latest_first) {
    if (state_.team_of(state_.running(id).job).is_over_quota()) {
      state_.lend(id);
      Decision decision;
      decision.kind = DecisionKind::kLend;
      decision.job = id;
      decisions_.push_back(std::move(decision));
    }
  }
}

// Not even the smallest gang that waits.
bool SchedulingRound::nothing_fits() const {
  const auto& gangs = state_.waiting_gangs();
  return std::none_of(gangs.begin(), gangs.end(), [&](const auto& alike) {
    return gang_fits(state_.cluster(), {*alike.second.begin(), alike.first});
  });
}

// The first jobs of the queue; then, in the order of the queue, of each team that has few among them, its share of as
// many.
void SchedulingRound::look_at_owned(bool explain) {
  std::vector<std::size_t> looked_at(state_.teams().size());
  std::size_t left = settings_.depth;
  for (auto next = state_.waiting().begin(); next != state_.waiting().end() && left > 0; ++next, --left) {
    ++looked_at[next->second.team];
    look_at(next->second, explain);
  }
  if (left > 0 || state_.waiting().empty()) {
    return;
  }
  const auto& queues = state_.waiting_of_teams();
  const auto waiting_teams = static_cast<std::size_t>(
      std::count_if(queues.begin(), queues.end(), [](const auto& queue) { return !queue.empty(); }));
  const std::size_t share = std::max<std::size_t>(1, settings_.depth / waiting_teams);
  std::map<SchedulerState::Order, const ScheduledJob*> more;
  for (std::size_t team = 0; team < queues.size(); ++team) {
    auto next = queues[team].begin();
    for (std::size_t count = 0; count < share && next != queues[team].end(); ++count, ++next) {
      if (count >= looked_at[team]) {
        more.insert(*next);
      }
    }
  }
  for (const auto& [order, job] : more) {
    look_at(*job, explain);
  }
}

void SchedulingRound::look_at(const ScheduledJob& job, bool explain) {
  const ScheduledTeam& team = state_.team_of(job);
  if (waits_for_quota_[job.team] || !team.has_quota_for(job)) {
    // One that no quota of its team can hold waits for none.
    waits_for_quota_[job.team] = waits_for_quota_[job.team] || team.could_own(job);
    over_quota_.push_back(&job);
  } else if (nobody_passes_ || !start(job, false)) {
    reserve(job);
    if (explain) {
      reasons_.emplace(job.request.id, why_no_room(job));
    }
  }
}

void SchedulingRound::look_at_borrowers(bool explain) {
  for (const ScheduledJob* job : over_quota_) {
    if (settings_.borrow && !nobody_passes_ && start(*job, true)) {
      continue;
    }
    if (settings_.borrow) {
      reserve(*job);
    }
    if (explain) {
      reasons_.emplace(job->request.id, fmt::format("{}; {}", why_over_quota(*job),
                                                    settings_.borrow ? why_no_room(*job) : "it may not borrow"));
    }
  }
}

void SchedulingRound::own_borrowed() {
  // The job that started first is owned first.
  std::vector<std::tuple<Seconds, std::string>> in_order;
  for (const auto& [priority, started, id] : state_.borrowed()) {
    in_order.emplace_back(-started, id);
  }
  std::sort(in_order.begin(), in_order.end());
  for (const auto& [started, id] : in_order) {
    const ScheduledJob& job = state_.running(id).job;
    if (!waits_for_quota_[job.team] && state_.team_of(job).has_quota_for(job)) {
      state_.own(id);
      Decision decision;
      decision.kind = DecisionKind::kOwn;
      decision.job = id;
      decisions_.push_back(std::move(decision));
    }
  }
}

void SchedulingRound::explain_waiting() {
  const std::set<std::string> gone(started_.begin(), started_.end());
  std::int64_t place = 0;
  for (const auto& [order, job] : state_.waiting()) {
    if (gone.count(job.request.id) != 0) {
      continue;
    }
    Decision wait;
    wait.job = job.request.id;
    wait.place_in_queue = ++place;
    if (reservation_ && reserved_for_ == wait.job && std::isfinite(reservation_->time())) {
      wait.starts_by = reservation_->time();
    }
    const auto reason = reasons_.find(wait.job);
    wait.reason =
        reason != reasons_.end() ? reason->second : fmt::format("{} jobs are before it in the queue", place - 1);
    decisions_.push_back(std::move(wait));
  }
}

// Those that were preempted wait again, from the next round on.
void SchedulingRound::carry_out() {
  for (const std::string& id : started_) {
    state_.dequeue(id);
  }
  for (const Decision& decision : decisions_) {
    if (decision.kind == DecisionKind::kPreempt) {
      state_.queue_again(decision.job);
    }
  }
}

bool SchedulingRound::start(const ScheduledJob& job, bool borrows) {
  std::vector<std::string> gone;
  Places nodes = places_for(job);
  if (!nodes && !borrows && settings_.preempt) {
    nodes = places_after_preemption(job, gone);
  }
  if (!nodes) {
    return false;
  }
  if (is_concerned(job)) {
    for (const int node : *nodes) {
      reservation_->taken(node, job.gang.each);
    }
  }
  Decision decision;
  decision.kind = DecisionKind::kStart;
  decision.job = job.request.id;
  decision.is_borrowed = borrows;
  decision.other_jobs = std::move(gone);
  for (const int node : *nodes) {
    decision.nodes.push_back(state_.cluster().name(node));
  }
  started_.push_back(decision.job);
  decisions_.push_back(std::move(decision));
  state_.start({job, now_, std::move(*nodes), borrows});
  return true;
}

SchedulingRound::Places SchedulingRound::places_for(const ScheduledJob& job) {
  const Way way = is_concerned(job) ? kConcerned : kFree;
  if (is_too_many(job, way)) {
    return std::nullopt;
  }
  std::optional<Reservation::Shade> shade;
  if (way == kConcerned) {
    shade.emplace(*reservation_, state_.cluster());
  }
  Places nodes = place_gang(state_.cluster(), job.gang, settings_.placement, random_);
  if (!nodes) {
    found_no_room(job, way);
  }
  return nodes;
}

SchedulingRound::Places SchedulingRound::places_after_preemption(const ScheduledJob& job,
                                                                 std::vector<std::string>& gone) {
  if (state_.borrowed().empty() || is_too_many(job, kPreempting)) {
    return std::nullopt;
  }
  const auto fits = [&] {
    std::optional<Reservation::Shade> shade;
    if (is_concerned(job)) {
      shade.emplace(*reservation_, state_.cluster());
    }
    return gang_fits(state_.cluster(), job.gang);
  };
  std::vector<const RunningGang*> victims;
  bool enough = false;
  for (const auto& [priority, started, id] : state_.borrowed()) {
    victims.push_back(&state_.running(id));
    give(*victims.back());
    enough = fits();
    if (enough) {
      break;
    }
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
    for (const RunningGang* victim : victims) {
      take_back(*victim);
    }
    found_no_room(job, kPreempting);
    return std::nullopt;
  }
  for (const RunningGang* victim : victims) {
    gone.push_back(victim->job.request.id);
    state_.take_places(*victim);  // preempt() gives them back
    preempt(gone.back(), job.request.id,
            fmt::format("team {} needs the places that it had lent", state_.team_of(job).name));
  }
  return places_for(job);
}

void SchedulingRound::preempt(const std::string& id, const std::string& for_job, const std::string& reason) {
  state_.preempt(id);
  Decision decision;
  decision.kind = DecisionKind::kPreempt;
  decision.job = id;
  if (!for_job.empty()) {
    decision.other_jobs.push_back(for_job);
  }
  decision.reason = reason;
  decisions_.push_back(std::move(decision));
  forget_failures();
}

void SchedulingRound::reserve(const ScheduledJob& job) {
  nobody_passes_ = nobody_passes_ || !settings_.backfill;
  if (reservation_) {
    return;
  }
  auto next = state_.ends().begin();
  reservation_ = Reservation::make(state_.cluster(), job.gang, now_, [&]() -> std::optional<Release> {
    if (next == state_.ends().end()) {
      return std::nullopt;
    }
    const RunningGang& running = *next->second;
    ++next;
    return Release{running.end(), &running.nodes, &running.job.gang.each};
  });
  if (reservation_) {
    reserved_for_ = job.request.id;
    reserved_team_ = job.team;
  }
}

bool SchedulingRound::is_concerned(const ScheduledJob& job) const {
  return reservation_ && reservation_->concerns(job.request.longest > 0 ? now_ + job.request.longest : kNever);
}

void SchedulingRound::give(const RunningGang& running) {
  state_.give_places(running);
  if (is_concerned(running.job)) {
    for (const int node : running.nodes) {
      reservation_->given(node, running.job.gang.each);
    }
  }
}

void SchedulingRound::take_back(const RunningGang& running) {
  state_.take_places(running);
  if (is_concerned(running.job)) {
    for (const int node : running.nodes) {
      reservation_->taken(node, running.job.gang.each);
    }
  }
}

std::string SchedulingRound::why_no_room(const ScheduledJob& job) const {
  std::int64_t fits = 0;
  for (const auto& [key, members] : state_.cluster().classes()) {
    fits += learners_that_fit(key.free, job.gang.each, job.gang.learners) * static_cast<std::int64_t>(members.size());
  }
  fits = std::min(fits, job.gang.learners);
  const std::string needs = needs_text(job.request.learners, job.request.each);
  const std::string now =
      fmt::format("{}; {} fit{} now", needs, fits == 0 ? "none" : std::to_string(fits), fits == 1 ? "s" : "");
  if (!reservation_) {
    return now + "; the nodes that are ready could not hold it even without other jobs";
  }
  if (reserved_for_ != job.request.id) {
    return fits == job.gang.learners
               ? fmt::format("{}, and there is room; but it would keep {} waiting, which comes first", needs,
                             who_comes_first(job))
               : fmt::format("{}; {} comes first", now, who_comes_first(job));
  }
  const Seconds time = reservation_->time();
  return std::isfinite(time) ? fmt::format("{}; starts in {} at the latest", now, time_text(time - now_))
                             : now + "; is next, and places are kept for it as they become free";
}

std::string SchedulingRound::why_over_quota(const ScheduledJob& job) const {
  const ScheduledTeam& team = state_.team_of(job);
  const bool could_own = team.could_own(job);
  for (std::size_t kind = 0; kind < kMostKinds; ++kind) {
    const std::int64_t held = could_own ? team.owned[kind] : 0;
    if (held + job.total[kind] > team.quota[kind]) {
      const auto text = [&](std::int64_t amount) { return state_.kinds().text(kind, amount); };
      return could_own ? fmt::format("team {} has {} of its quota of {}, and this takes {}", team.name, text(held),
                                     text(team.quota[kind]), text(job.total[kind]))
                       : fmt::format("this takes {}, more than team {}'s whole quota of {}", text(job.total[kind]),
                                     team.name, text(team.quota[kind]));
    }
  }
  return fmt::format("earlier jobs of team {} wait for its quota", team.name);
}

std::string SchedulingRound::who_comes_first(const ScheduledJob& job) const {
  return reserved_team_ == job.team ? reserved_for_
                                    : fmt::format("a job of team {}", state_.teams()[reserved_team_].name);
}

void SchedulingRound::forget_failures() {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  too_many_.assign(state_.sizes(), {kAny, kAny, kAny});
}

}  // namespace tesser::platform
