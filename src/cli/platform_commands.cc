// The platform's commands, which must start at once: nothing here may need src/runtime.

#include "cli/commands.h"

namespace tesser::cli {

void add_platform_commands(CLI::App& app, Action& action) {
  add_login(app, action);
  add_submit(app, action);
  add_list(app, action);
  add_status(app, action);
  add_logs(app, action);
  add_metrics(app, action);
  add_halt(app, action);
  add_resume(app, action);
  add_delete(app, action);
  add_download(app, action);
  add_nodes(app, action);
  add_quota(app, action);
  add_user(app, action);
  add_team(app, action);
  add_token(app, action);
  add_simulate(app, action);
  add_guardian(app, action);
  add_learner(app, action);
  add_server(app, action);
}

}  // namespace tesser::cli
