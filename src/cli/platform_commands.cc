// The platform's commands, which must start at once: nothing here may need src/runtime.

#include "cli/commands.h"

namespace tesser::cli {

void add_platform_commands(CLI::App& app, Action& action) {}

}  // namespace tesser::cli
