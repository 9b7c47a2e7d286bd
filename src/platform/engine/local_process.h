// Processes of this machine: started so that they outlive us, known again after we died, ended with their descendants.
// Internal to this folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/learner_user.h"

namespace tesser::platform {

// One process that ever was: identifiers are used again, start times within one boot are not.
struct ProcessIdentity {
  pid_t process = 0;
  std::uint64_t start_ticks = 0;  // since boot
  std::string boot;               // /proc/sys/kernel/random/boot_id

  bool operator==(const ProcessIdentity&) const = default;
};

struct ProcessStatus {
  std::uint64_t start_ticks = 0;
  pid_t session = 0;
  bool has_ended = false;  // nobody has asked for its code yet
};

const std::string& boot_identifier();
// Of a process that exists; nothing otherwise.
std::optional<ProcessStatus> process_status(pid_t process);
// Whether it exists and has not ended. Takes the code of an ended child of ours, so that the system forgets it.
bool is_alive(const ProcessIdentity& identity);

struct ProcessStart {
  std::vector<std::string> command;  // a path, or a name that PATH has
  std::vector<std::string> environment;
  std::filesystem::path directory;
  std::filesystem::path output;                // appended; /dev/null when it cannot be opened
  std::vector<std::filesystem::path> cgroups;  // cgroup.procs files to enter
  LearnerUser user;                            // whom it becomes, if this process is root and that one is not
  // The process writes {"process", "start_ticks", "boot"} to this path before it becomes the command, complete or not
  // at all.
  std::filesystem::path note;
};

enum class StartOutcome : std::uint8_t { kStarted, kNoteExists };
// Starts a session with the command. Any thread. kFailed when the note cannot be written (its directory is gone: the
// attempt is removed), kInvalidInput when there is no such command.
Result<StartOutcome> start_process(const ProcessStart& start);
// What a note says; nothing when there is none.
std::optional<ProcessIdentity> read_note(const std::filesystem::path& note);

// Sends SIGKILL to each process for which `is_meant` holds, and again until none is left; a process that forks while
// it is being looked for is found in the next round. Error: one does not end.
struct ProcessFacts {
  pid_t process;
  ProcessStatus status;
  std::string_view environment;  // entries that end in \0, as the process was started
};
Result<void> end_processes(const std::function<bool(const ProcessFacts&)>& is_meant);

// The value of a variable in such an environment.
std::optional<std::string_view> variable_of(std::string_view environment, std::string_view name);

}  // namespace tesser::platform
