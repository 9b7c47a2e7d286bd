#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"

namespace tesser::cli {
namespace {

using Path = std::filesystem::path;

// The nearest folder above the executable that holds `relative`, or else the one this binary was built from.
std::optional<Path> find_above(const Path& relative) {
  std::error_code error;
  Path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / relative, error)) {
      return folder / relative;
    }
  }
  const Path source = Path(TESSER_SOURCE_DIR) / relative;
  return std::filesystem::exists(source, error) ? std::optional(source) : std::nullopt;
}

std::string find_python() {
  if (const char* chosen = std::getenv("TESSER_PYTHON"); chosen != nullptr && *chosen != '\0') {
    return chosen;
  }
  if (const auto environment = find_above(".venv/bin/python")) {
    return environment->string();
  }
  const std::string at_build = TESSER_BUILD_PYTHON;
  return at_build.empty() ? "python3" : at_build;
}

// Replaces this process by Python's `tesser capture`; returns only where that fails.
Result<int> run_capture(const std::vector<std::string>& arguments) {
  const std::string python = find_python();
  if (const auto module = find_above("python/tesser")) {
    std::string path = module->parent_path().string();
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
  return invalid_input(
      fmt::format("cannot run Python '{}': {}; run ./x setup, or set TESSER_PYTHON to a Python that has PyTorch",
                  python, std::generic_category().message(errno)));
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
