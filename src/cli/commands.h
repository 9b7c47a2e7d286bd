// The subcommands of `tesser`, one source file each.
//
// add_NAME() declares a command's arguments on `app`; when the user chose the command, parsing sets `action`, and
// main() then runs it. An action returns the exit code (0 done, 1 the run failed) or an error, which main() prints and
// turns into one; it prints results to standard output and nothing else there.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace tesser::cli {

using Action = std::function<Result<int>()>;

void add_capture(CLI::App& app, Action& action);
void add_evaluate(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_guardian(CLI::App& app, Action& action);
void add_hub(CLI::App& app, Action& action);
void add_learner(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_lower(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_server(CLI::App& app, Action& action);
void add_show(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);
void add_tdl(CLI::App& app, Action& action);
void add_tdl_check(CLI::App& tdl, Action& action);
void add_tdl_explain(CLI::App& tdl, Action& action);
void add_tdl_list(CLI::App& tdl, Action& action);
void add_train(CLI::App& app, Action& action);
void add_transport(CLI::App& app, Action& action);
void add_worker(CLI::App& app, Action& action);

// Of people who have jobs, over the platform's API.
void add_completion(CLI::App& app, Action& action);
void add_delete(CLI::App& app, Action& action);
void add_download(CLI::App& app, Action& action);
void add_halt(CLI::App& app, Action& action);
void add_list(CLI::App& app, Action& action);
void add_login(CLI::App& app, Action& action);
void add_logs(CLI::App& app, Action& action);
void add_metrics(CLI::App& app, Action& action);
void add_nodes(CLI::App& app, Action& action);
void add_quota(CLI::App& app, Action& action);
void add_resume(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_submit(CLI::App& app, Action& action);
void add_team(CLI::App& app, Action& action);
void add_token(CLI::App& app, Action& action);
void add_user(CLI::App& app, Action& action);

// All of the platform (docs/platform.md): the program `tesser` has these alone, without PyTorch's libraries.
void add_platform_commands(CLI::App& app, Action& action);

}  // namespace tesser::cli
