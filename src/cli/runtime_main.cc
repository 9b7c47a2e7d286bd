// The program `tesser-runtime`: every command. `tesser` runs it for all but the platform's.

#include "cli/command_line.h"

namespace tesser::cli {
namespace {

void add_all_commands(CLI::App& app, Action& action) {
  add_capture(app, action);
  add_show(app, action);
  add_plan(app, action);
  add_lower(app, action);
  add_train(app, action);
  add_evaluate(app, action);
  add_run(app, action);
  add_generate(app, action);
  add_export(app, action);
  add_tdl(app, action);
  add_transport(app, action);
  add_worker(app, action);
  add_hub(app, action);
  add_platform_commands(app, action);
  add_completion(app, action);  // of all commands, so here
}

}  // namespace
}  // namespace tesser::cli

int main(int count, char** words) { return tesser::cli::run(count, words, tesser::cli::add_all_commands); }
