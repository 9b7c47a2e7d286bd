// Everything the platform must not forget, in one file (SQLite in write-ahead mode): jobs with every change of their
// state, what their owners want, places, leases, and tokens. A change is one transaction that is on the disk when the
// call returns; a call that fails has changed nothing.
//
// Any thread, any number at a time; writers wait for each other. One process: the server holds a lock on its directory.
// Errors: kInvalidInput when the change is refused (not in this state, an older epoch; docs/platform.md), kNotFound
// when there is no such job, kFailed when the file cannot be read or written (locked, corrupt, disk full), which says
// what to do. Times are microseconds since 1970.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/job_state.h"
#include "platform/job/resources.h"
#include "platform/store/tenants.h"

namespace tesser::platform {

struct NewJob {
  std::string id;
  std::string name;
  std::string description;
  std::string user;
  std::string team;
  int priority = 50;
  int learners = 1;
  Resources each;
  int restarts_most = 0;
  std::int64_t longest = 0;     // seconds in PROCESSING at most; 0: nobody knows
  std::string idempotency_key;  // of this user; empty: none
  std::string request_digest;   // of what was submitted: the same key with another digest is refused
  std::int64_t time = 0;
  int most_waiting_of_user = 0;  // it is refused where the user, or the team, has so many that wait; 0: any number
  int most_waiting_of_team = 0;
};

struct JobRecord {
  std::int64_t number = 0;  // in the order of submission, from 1
  std::string id;
  std::string name;
  std::string description;
  std::string user;
  std::string team;
  int priority = 50;
  int learners = 1;
  Resources each;
  JobState state = JobState::kQueued;
  std::string code;
  std::string reason;
  Wanted wanted = Wanted::kRun;
  int attempt = 0;
  std::int64_t epoch = 0;  // of its lease
  std::string holder;      // of its lease, as it called itself; empty: nobody
  Placement placement;
  int restarts = 0;  // of its learners, after they had run
  int restarts_most = 0;
  std::int64_t longest = 0;  // seconds in PROCESSING at most; 0: nobody knows
  // Runs beyond its team's quota, on what others lend; they may take it back.
  bool is_borrowed = false;
  std::string preempted;  // why it is to give its places back and wait again, in words; empty: it is not
  std::int64_t submitted = 0;
  std::int64_t queued = 0;   // since when it waits, or waited the last time
  std::int64_t placed = 0;   // since when it has its places; 0: has none
  std::int64_t changed = 0;  // its state
  std::int64_t started = 0;  // the first PROCESSING; 0: not yet
  std::int64_t ended = 0;    // COMPLETED, FAILED or HALTED; 0 else
};

// A change of state, as it was and as it is stored.
struct StateChange {
  JobState state = JobState::kQueued;
  std::string code;    // "U..." or "S..." with a reason of that class; may be empty
  std::string reason;  // in words; may be empty
  int attempt = 0;
  std::int64_t epoch = 0;
  std::int64_t time = 0;
};

// What a guardian says. `sequence` is its journal's: what is not above the last one stored changes nothing.
struct GuardianReport {
  StateChange change;
  std::int64_t sequence = 0;
};

// "S_PREEMPTED": a job waits again because its places were needed. Costs none of its restarts.
inline constexpr std::string_view kPreempted = "S_PREEMPTED";

// What is wanted of a job as its guardian is told.
Wanted wanted_of_guardian(const JobRecord& job);

// What the scheduler has decided about a job.
struct SchedulingStep {
  enum class Kind : std::uint8_t {
    kPlace,    // QUEUED or RESUMED to PENDING, on `nodes`
    kPreempt,  // is to give its places back, for this reason
    kOwn,      // is borrowed no longer
    kLend,     // is borrowed from now on
  };
  Kind kind = Kind::kPlace;
  std::string job;
  Placement nodes;
  bool is_borrowed = false;  // kPlace
  std::string reason;        // kPreempt
};

// A job as it is after a change; none when it was removed.
struct JobChange {
  std::string id;
  std::optional<JobRecord> job;
};

struct JobFilter {
  std::vector<JobState> states;                     // empty: all
  std::string team;                                 // empty: all
  std::string text;                                 // in the id, description or user, in any case; empty: all
  std::int64_t before = 0;                          // only numbers below it; 0: all
  std::size_t limit = 1'000;                        // newest first
  std::optional<std::vector<std::string>> teams{};  // only theirs; nothing: all
};

struct Submitted {
  JobRecord job;
  bool is_new = true;             // false: the one that was submitted with this idempotency key
  std::string one_too_many = {};  // not empty: nothing was submitted, and this says of what there are too many
};

class Store {
 public:
  // Makes the file where there is none, and brings an older one up to date. kFailed when it is corrupt, was written by
  // a newer program, is locked or cannot be written.
  static Result<std::unique_ptr<Store>> open(const std::filesystem::path& file);
  virtual ~Store() = default;

  // The job as QUEUED, with its guardian's token (stored as its hash).
  virtual Result<Submitted> submit(const NewJob& job, const std::string& guardian_token) = 0;
  virtual Result<JobRecord> job(const std::string& id) const = 0;
  // The job that the user submitted with this key, if there is one.
  virtual Result<std::optional<JobRecord>> submitted_with(const std::string& user, const std::string& key,
                                                          const std::string& request_digest) const = 0;
  virtual Result<std::vector<JobRecord>> jobs(const JobFilter& filter) const = 0;
  // Those that are not final and not HALTED, or whose owner wants them deleted; oldest first.
  virtual Result<std::vector<JobRecord>> live_jobs() const = 0;
  // Those that hold places; oldest first.
  virtual Result<std::vector<JobRecord>> placed_jobs() const = 0;
  virtual Result<std::map<std::string, std::int64_t>> count_waiting_by_team() const = 0;
  // From now on `hear` gets every job that changes, each change once and in the order of changes, on the thread that
  // made it, after it is on the disk. It must not call the store. One at a time; an empty one ends it.
  virtual void watch(std::function<void(const JobChange&)> hear) = 0;
  virtual Result<std::vector<StateChange>> history(const std::string& id) const = 0;
  // Of all jobs, or of these teams' alone.
  virtual Result<std::vector<std::pair<JobState, std::int64_t>>> count_by_state(
      const std::optional<std::vector<std::string>>& teams = {}) const = 0;

  // A change that the server itself makes. Places are given up by all states that hold none; so are the lease and its
  // epoch's validity by all states without a guardian.
  virtual Result<JobRecord> change(const std::string& id, const StateChange& change) = 0;
  // In one transaction. A job that has changed meanwhile so that its step cannot be is left as it is; the answer says
  // which, and why.
  virtual Result<std::vector<std::string>> carry_out(const std::vector<SchedulingStep>& steps, std::int64_t time) = 0;
  virtual Result<JobRecord> want(const std::string& id, Wanted wanted) = 0;
  // HALTED to RESUMED, wanted "run", with this number of learners.
  virtual Result<JobRecord> resume(const std::string& id, int learners, std::int64_t time) = 0;
  // The record with its history and its guardian's token.
  virtual Result<void> remove(const std::string& id) = 0;

  // A new epoch for a job in a state with a guardian.
  virtual Result<JobRecord> take_lease(const std::string& id, const std::string& holder) = 0;
  virtual Result<JobRecord> report(const std::string& id, const GuardianReport& report) = 0;

  // None removes it. kNotFound when there is no such team; a team that is removed takes its quota along.
  virtual Result<void> set_quota(const std::string& team, const std::optional<Resources>& quota) = 0;
  virtual Result<std::map<std::string, Resources>> quotas() const = 0;
  virtual Result<void> set_draining(const std::string& node, bool drains) = 0;
  virtual Result<std::set<std::string>> draining_nodes() const = 0;

  // As long as the store.
  virtual Tenants& tenants() = 0;
};

}  // namespace tesser::platform
