// `tesser tdl`: descriptions of operators.

#include "cli/commands.h"

namespace tesser::cli {

void add_tdl(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("tdl", "Descriptions of operators: how each can be cut over workers");
  command->require_subcommand(1);
  add_tdl_explain(*command, action);
  add_tdl_list(*command, action);
  add_tdl_check(*command, action);
}

}  // namespace tesser::cli
