#include "cli/stop_signal.h"

#include <unistd.h>
#include <csignal>
#include <cstring>
#include <initializer_list>

namespace tesser::cli {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<const char*> message{""};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

extern "C" void request_stop(int) {
  stop_requested = true;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  for (const char* part : {"\ntesser: ", message.load(), "; once more to end at once\n"}) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, part, std::strlen(part));
  }
}

}  // namespace

const std::atomic<bool>& stop_on_signal(const char* what_follows) {
  message = what_follows;
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
  return stop_requested;
}

}  // namespace tesser::cli
