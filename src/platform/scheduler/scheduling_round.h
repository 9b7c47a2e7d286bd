// One round of decisions, by the rules of scheduler.h. Internal to this folder.
//
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/scheduler/reservation.h"
#include "platform/scheduler/scheduler_state.h"

namespace tesser::platform {

class SchedulingRound {
 public:
  SchedulingRound(SchedulerState& state, const SchedulerSettings& settings, RandomNumbers& random, Seconds now)
      : state_(state), settings_(settings), random_(random), now_(now), waits_for_quota_(state.teams().size()) {
    forget_failures();
  }

  // Decides, and carries it out on the state. With `explain`, every job that waits on has a decision.
  std::vector<Decision> decide(bool explain);

 private:
  using Places = std::optional<std::vector<int>>;  // the node of each rank
  enum Way : std::uint8_t { kFree, kConcerned, kPreempting };

  void empty_draining_nodes();
  void lend_beyond_quota();
  bool nothing_fits() const;
  void look_at_owned(bool explain);
  void look_at(const ScheduledJob& job, bool explain);
  void look_at_borrowers(bool explain);
  void own_borrowed();
  void explain_waiting();
  void carry_out();

  bool start(const ScheduledJob& job, bool borrows);
  Places places_for(const ScheduledJob& job);
  Places places_after_preemption(const ScheduledJob& job, std::vector<std::string>& gone);
  void preempt(const std::string& id, const std::string& for_job, const std::string& reason);
  // For a job that finds no room, unless another has it.
  void reserve(const ScheduledJob& job);
  bool is_concerned(const ScheduledJob& job) const;
  void give(const RunningGang& running);
  void take_back(const RunningGang& running);
  std::string why_no_room(const ScheduledJob& job) const;
  std::string why_over_quota(const ScheduledJob& job) const;
  std::string who_comes_first(const ScheduledJob& job) const;

  bool is_too_many(const ScheduledJob& job, Way way) const { return job.gang.learners >= too_many_[job.size][way]; }
  void found_no_room(const ScheduledJob& job, Way way) { too_many_[job.size][way] = job.gang.learners; }
  void forget_failures();

  SchedulerState& state_;
  const SchedulerSettings& settings_;
  RandomNumbers& random_;
  const Seconds now_;

  std::vector<Decision> decisions_;
  std::vector<std::string> started_;
  std::vector<const ScheduledJob*> over_quota_;
  std::unordered_map<std::string, std::string> reasons_;  // of jobs that were looked at and wait on
  std::optional<Reservation> reservation_;
  std::string reserved_for_;
  std::size_t reserved_team_ = 0;
  bool nobody_passes_ = false;         // a job waits, and there is no backfill
  std::vector<bool> waits_for_quota_;  // of each team: one of its jobs does
  // Of each size of learners the smallest gang that found no room: where the reservation did not concern it, where it
  // did, and with all that could be preempted.
  std::vector<std::array<std::int64_t, 3>> too_many_;
};

}  // namespace tesser::platform
