// Processes that a learner starts, and what it asks of the system about them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

struct ChildStart {
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;
  std::filesystem::path directory;
  std::filesystem::path output;  // standard output and standard error, appended; made when it is not there
  pid_t group = 0;               // process group to join; 0: one of its own
};
// Starts a process that the system kills when this one dies. kInvalidInput when the command cannot be run, which says
// why; kFailed when the system lacks something.
Result<pid_t> start_child(const ChildStart& start);

// A copy of this process that runs `body` and ends with its exit code.
Result<pid_t> fork_child(const std::function<int()>& body);

// How many processes of this process's control group the system has killed for want of memory; none where it does not
// say.
std::optional<std::int64_t> killed_for_memory();

// "SIGKILL" for 9.
std::string signal_name(int number);

}  // namespace tesser::platform
