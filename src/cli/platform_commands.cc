// The platform's commands, which must start at once: nothing here may need src/runtime.

#include "cli/commands.h"

namespace tesser::cli {

void add_platform_commands(CLI::App& app, Action& action) {
  add_guardian(app, action);
  add_learner(app, action);
}

}  // namespace tesser::cli
