// Runs programs of the system (sbatch, squeue ...) without a shell, with an end.
//
// Any thread; a call blocks until the program has ended or its time is over. A program never outlives the thread that
// runs it: the kernel kills it when that thread ends, as when its process is killed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

using Deadline = std::chrono::steady_clock::time_point;

struct CommandOutput {
  int exit_code = 0;  // 128 + the signal when one ended it
  std::string output;
  std::string errors;  // standard error
};

struct Command {
  std::vector<std::string> words;        // words[0] is looked for on this process's PATH
  std::vector<std::string> environment;  // "NAME=VALUE", all of it
  Deadline deadline;
};

// Whether there is such a program on this process's PATH.
bool has_program(const std::string& name);

// The program's own exit code is no error. Errors: kNotFound when there is no such program, kFailed when it cannot be
// started, still runs at the deadline (it is killed then) or says more than 256 MiB.
Result<CommandOutput> run_command(const Command& command);

}  // namespace tesser::platform
