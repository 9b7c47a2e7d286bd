#include "cli/command_line.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/nearest_name.h"
#include "cli/output.h"
#include "cli/stop_signal.h"

namespace tesser::cli {
namespace {

constexpr int kWrongUsage = 2;

constexpr const char* kExamples = R"(
Examples:
  tesser capture step.py -o model.tesser
  tesser show model.tesser
  tesser train model.tesser --data data --epochs 3 --checkpoint run1
  tesser export run1 -o weights.safetensors

`tesser COMMAND --help` says more about each.)";

int wrong_usage(const std::string& where, const std::string& message) {
  print_message("{0}: {1}\nSee {0} --help.\n", where, message);
  return kWrongUsage;
}

// The exit code of a command that has printed what it had to.
int ended(const std::string& where, Result<int> outcome) {
  if (const Result<void> written = flush_output(); !written && outcome && *outcome == 0) {
    outcome = tl::unexpected<Error>(written.error());
  }
  if (!outcome) {
    print_message("{}: error: {}\n", where, outcome.error().message);
    return exit_code(outcome.error());
  }
  return *outcome;
}

}  // namespace

int run(int count, char** words, const AddCommands& add, const std::function<int()>& otherwise) {
  prepare_output();
  restore_hangup();
  CLI::App app("tesser trains PyTorch training steps in C++", "tesser");
  app.set_version_flag("--version", "tesser " TESSER_VERSION);
  app.footer(kExamples);
  Action action;
  add(app, action);

  const std::string given = count < 2 ? "" : words[1];
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  const bool is_command = std::find(names.begin(), names.end(), given) != names.end();
  if (!is_command && otherwise) {
    return otherwise();
  }
  if (count < 2) {
    print_output("{}", app.help());
    return kWrongUsage;
  }
  if (!is_command && !given.starts_with("-")) {
    const auto nearest = nearest_name(given, names);
    return wrong_usage("tesser", fmt::format("unknown command '{}'{}", given,
                                             nearest ? fmt::format("; did you mean '{}'?", *nearest) : ""));
  }
  const std::string where = is_command ? "tesser " + given : "tesser";
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {  // CLI11's way to report, ends here
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream text;
      app.exit(error, text, text);
      write_output(text.str());
      return ended(where, 0);
    }
    return wrong_usage(where, error.what());
  }
  if (!action) {
    return wrong_usage("tesser", "expected a command");
  }
  return ended(where, action());
}

}  // namespace tesser::cli
