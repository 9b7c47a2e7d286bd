#include "cli/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/file.h"

namespace tesser::cli {
namespace {

std::atomic<int> failure{0};  // errno of the first write that failed
std::atomic<bool> outlives{false};

void fail(int reason) {
  if (reason == EPIPE && !outlives) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  int none = 0;
  failure.compare_exchange_strong(none, reason == 0 ? EIO : reason);
}

}  // namespace

void prepare_output() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) {
      // Takes this number, as those below are open, and answers every use as the closed one would.
      [[maybe_unused]] const int taken = ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
  std::signal(SIGPIPE, SIG_IGN);
}

void outlive_output() { outlives = true; }

void write_output(std::string_view text) {
  if (failure == 0 && std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    fail(errno);
  }
}

void write_message(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

Result<void> flush_output() {
  if (failure == 0 && std::fflush(stdout) != 0) {
    fail(errno);
  }
  if (failure != 0 && failure != EPIPE) {
    return tl::unexpected<Error>(file_error("standard output", "write", failure));
  }
  return {};
}

bool is_standard_output(const std::filesystem::path& path) {
  struct stat output {};
  struct stat file {};
  return ::fstat(STDOUT_FILENO, &output) == 0 && ::stat(path.c_str(), &file) == 0 && output.st_dev == file.st_dev &&
         output.st_ino == file.st_ino;
}

}  // namespace tesser::cli
