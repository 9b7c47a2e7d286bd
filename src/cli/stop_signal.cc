#include "cli/stop_signal.h"

#include <unistd.h>
#include <csignal>
#include <cstring>
#include <initializer_list>

#include "cli/output.h"

namespace tesser::cli {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<const char*> message{""};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

bool hangup_was_ignored = false;

extern "C" void note_hangup(int, char**, char**) { hangup_was_ignored = is_ignored(SIGHUP); }

// Runs before the constructors of all libraries.
__attribute__((section(".preinit_array"), used)) void (*note_hangup_first)(int, char**, char**) = note_hangup;

extern "C" void request_stop(int signal) {
  if (signal == SIGHUP && stop_requested) {
    return;
  }
  stop_requested = true;
  if (signal != SIGHUP) {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
  for (const char* part : {"\ntesser: ", message.load(), signal == SIGHUP ? "\n" : "; once more to end at once\n"}) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, part, std::strlen(part));
  }
}

}  // namespace

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void restore_hangup() { std::signal(SIGHUP, hangup_was_ignored ? SIG_IGN : SIG_DFL); }

const std::atomic<bool>& stop_on_signal(const char* what_follows) {
  message = what_follows;
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  if (!is_ignored(SIGHUP)) {
    ::sigaction(SIGHUP, &action, nullptr);
  }
  outlive_output();
  std::signal(SIGXFSZ, SIG_IGN);
  return stop_requested;
}

}  // namespace tesser::cli
