#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/python.h"

namespace tesser::cli {
namespace {

// Replaces this process by Python's `tesser capture`; returns only where that fails.
Result<int> run_capture(const std::vector<std::string>& arguments) {
  const std::string python = find_python();
  if (const auto package = find_python_package()) {
    std::string path = package->string();
    if (const char* given = std::getenv("PYTHONPATH"); given != nullptr && *given != '\0') {
      path += std::string(":") + given;
    }
    ::setenv("PYTHONPATH", path.c_str(), 1);
  }
  std::vector<std::string> words{python, "-m", "tesser", "capture"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  ::execvp(python.c_str(), pointers.data());
  const int error = errno;
  const std::string what_to_do =
      error == EACCES ? fmt::format("user {} may not (`namei -l {}` shows where the way ends); open it to this user",
                                    ::geteuid(), python)
                      : "run ./x setup";
  return invalid_input(fmt::format("cannot run Python '{}': {}; {}, or set TESSER_PYTHON to a Python that has PyTorch",
                                   python, std::generic_category().message(error), what_to_do));
}

}  // namespace

void add_capture(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("capture", "Capture a PyTorch training step as a program (runs Python)");
  // Python parses the arguments, --help among them.
  command->prefix_command();
  command->set_help_flag();
  command->callback(
      [command, &action] { action = [arguments = command->remaining()] { return run_capture(arguments); }; });
}

}  // namespace tesser::cli
