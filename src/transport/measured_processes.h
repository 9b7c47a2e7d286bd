// The two processes of a measurement on one machine.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tesser::transport {

// Hands the address at which the leading side listens to the following one. Called once.
using TellAddress = std::function<void(std::string_view)>;

// Runs `lead` in this process and `follow` in a child, each bound to a processor of its own where this process may use
// two. Both return exit codes; so does this function: that of `lead`, or of `follow` when `lead`'s is 0. Blocks until
// both have ended; the child is killed when `lead` fails and ends with this process. Call it before any thread starts.
int run_two_processes(const std::function<int(const TellAddress&)>& lead,
                      const std::function<int(const std::string& address)>& follow);

}  // namespace tesser::transport
