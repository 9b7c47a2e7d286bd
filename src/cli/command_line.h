// The command line of `tesser`, whatever commands it has. Exit codes: 0 done, 1 the run failed, 2 wrong usage or input.
#pragma once

#include <functional>

#include "cli/commands.h"

namespace tesser::cli {

using AddCommands = std::function<void(CLI::App& app, Action& action)>;

// Parses and runs; prints help, errors and what to do about them. Returns the exit code. Where the first word is none
// of the commands, `otherwise` runs in its place, if there is one.
int run(int count, char** words, const AddCommands& add, const std::function<int()>& otherwise = {});

}  // namespace tesser::cli
