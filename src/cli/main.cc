// The program `tesser`: the platform's commands, and the way to all others.
//
// Loading PyTorch's libraries takes a few tenths of a second and 200 MB, for each process of each job. So the commands
// of the platform are a program without them, and whatever it does not know, `tesser-runtime` beside it runs in its
// place.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/output.h"
#include "cli/waiting_threads.h"

namespace tesser::cli {
namespace {

int become_runtime(char** words) {
  std::error_code error;
  const auto runtime = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "tesser-runtime";
  bound_spinning();
  ::execv(runtime.c_str(), words);
  print_message("tesser: cannot run {}, which has all commands but the platform's: {}\n", runtime.string(),
                std::strerror(errno));
  return 1;
}

}  // namespace
}  // namespace tesser::cli

int main(int count, char** words) {
  return tesser::cli::run(count, words, tesser::cli::add_platform_commands,
                          [&] { return tesser::cli::become_runtime(words); });
}
