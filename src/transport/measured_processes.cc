#include "transport/measured_processes.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tesser::transport {
namespace {

std::vector<int> processors() {
  std::vector<int> found;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
      if (CPU_ISSET(processor, &set)) {
        found.push_back(processor);
      }
    }
  }
  return found;
}

void bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) {
    std::fprintf(stderr, "processor %d cannot be had for this process alone; figures will vary more\n", processor);
  }
}

// What the other end of the pipe writes until it closes.
std::string read_all(int pipe) {
  std::string text;
  char buffer[256];
  while (true) {
    const ssize_t size = ::read(pipe, buffer, sizeof(buffer));
    if (size > 0) {
      text.append(buffer, static_cast<std::size_t>(size));
    } else if (size == 0 || errno != EINTR) {
      return text;
    }
  }
}

}  // namespace

int run_two_processes(const std::function<int(const TellAddress&)>& lead,
                      const std::function<int(const std::string& address)>& follow) {
  const std::vector<int> places = processors();
  int ends[2];
  if (::pipe(ends) != 0) {
    std::perror("no pipe for a second process");
    return 1;
  }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    std::perror("no second process can be started");
    return 1;
  }
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[1]);
    if (::getppid() != parent) {
      ::_exit(1);
    }
    if (places.size() > 1) {
      bind_to(places[1]);
    }
    const std::string address = read_all(ends[0]);
    const int code = address.empty() ? 1 : follow(address);
    std::fflush(nullptr);
    ::_exit(code);
  }
  ::close(ends[0]);
  if (places.size() > 1) {
    bind_to(places[0]);
  }
  int open_end = ends[1];
  const int code = lead([&](std::string_view address) {
    if (::write(open_end, address.data(), address.size()) != static_cast<ssize_t>(address.size())) {
      std::perror("the second process is gone");
    }
    ::close(std::exchange(open_end, -1));
  });
  if (open_end != -1) {
    ::close(open_end);
  }
  if (code != 0) {
    ::kill(child, SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return code != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0) ? code : 1;
}

}  // namespace tesser::transport
