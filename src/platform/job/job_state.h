// The states of a job and what may follow what (docs/platform.md, states; "FfDL", Middleware 2019, section 3).
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tesser::platform {

enum class JobState : std::uint8_t {
  kQueued,       // accepted and stored; waits for places
  kPending,      // has places; its guardian starts
  kDeploying,    // learners start, all or none
  kDownloading,  // data stores are fetched
  kProcessing,   // commands run
  kStoring,      // results are stored
  kCompleted,    // final
  kFailed,       // final
  kHalted,       // stopped by its owner; may be resumed
  kResumed,      // waits for places again
};

// What is wanted of a job, as opposed to what it is: by its owner, or kYield, which only the server wants and only its
// guardian is told: give the places back and wait for others.
enum class Wanted : std::uint8_t { kRun, kHalt, kDelete, kYield };

// "QUEUED", as it is stored, shown and sent.
std::string_view name_of(JobState state);
std::optional<JobState> job_state_named(std::string_view name);
// "run", "halt", "delete", "yield".
std::string_view name_of(Wanted wanted);
std::optional<Wanted> wanted_named(std::string_view name);

// Whether a job may go from one state to the other. Nothing leaves a final state, and no state follows itself.
bool may_follow(JobState from, JobState to);
// The states from one to another on the shortest way through those of a job that runs, without the first; each may
// follow the one before it. The other state alone where there is no such way.
std::vector<JobState> way_to(JobState from, JobState to);
bool is_final(JobState state);
// Whether a job in this state waits for places.
bool waits_for_places(JobState state);
// Whether a job in this state holds places on nodes, and has or gets a guardian.
bool holds_places(JobState state);

}  // namespace tesser::platform
