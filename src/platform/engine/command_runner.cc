#include "platform/engine/command_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

constexpr std::size_t kLargestOutput = std::size_t{256} << 20;

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void take(int number) {
    close();
    number_ = number;
  }
  void close() {
    if (number_ >= 0) {
      ::close(number_);
      number_ = -1;
    }
  }

 private:
  int number_ = -1;
};

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return name;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = folder + "/" + name;
    if (!folder.empty() && ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return "";
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& each : strings) {
    pointers.push_back(const_cast<char*>(each.c_str()));  // execve() changes nothing there
  }
  pointers.push_back(nullptr);
  return pointers;
}

// In the child of fork(): only what is safe while other threads hold locks.
[[noreturn]] void become(const char* program, char* const* words, char* const* environment, int output, int errors,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (::getppid() == parent && nothing >= 0 && ::dup2(nothing, 0) >= 0 && ::dup2(output, 1) >= 0 &&
      ::dup2(errors, 2) >= 0) {
    ::syscall(SYS_close_range, 3U, ~0U, 4U);  // closed by exec; older kernels leave them open
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::execve(program, words, environment);
  }
  const char* reason = std::strerror(errno);
  (void)!::write(2, reason, std::strlen(reason));
  ::_exit(126);
}

// Appends what is there; closes at the end of it.
void read_some(Descriptor& from, std::string& to) {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::read(from.number(), buffer.data(), buffer.size());
  if (count > 0) {
    to.append(buffer.data(), static_cast<std::size_t>(count));
  } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
    from.close();
  }
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count() + 1, 0, 3'600'000));
}

}  // namespace

bool has_program(const std::string& name) { return !find_program(name).empty(); }

Result<CommandOutput> run_command(const Command& command) {
  const std::string& name = command.words.at(0);
  const std::string program = find_program(name);
  if (program.empty()) {
    return not_found(fmt::format("there is no program '{}' on the PATH", name));
  }
  std::vector<char*> words = pointers_to(command.words);
  std::vector<char*> environment = pointers_to(command.environment);

  std::array<int, 2> output_pipe{-1, -1};
  std::array<int, 2> errors_pipe{-1, -1};
  if (::pipe2(output_pipe.data(), O_CLOEXEC) != 0) {
    return failed(fmt::format("cannot run {}: {}", name, std::strerror(errno)));
  }
  Descriptor output(output_pipe[0]);
  Descriptor output_end(output_pipe[1]);
  if (::pipe2(errors_pipe.data(), O_CLOEXEC) != 0) {
    return failed(fmt::format("cannot run {}: {}", name, std::strerror(errno)));
  }
  Descriptor errors(errors_pipe[0]);
  Descriptor errors_end(errors_pipe[1]);

  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    return failed(fmt::format("cannot run {}: {}", name, std::strerror(errno)));
  }
  if (child == 0) {
    become(program.c_str(), words.data(), environment.data(), output_end.number(), errors_end.number(), parent);
  }
  output_end.close();
  errors_end.close();

  CommandOutput result;
  bool is_over = false;
  bool is_too_much = false;
  while (output.is_open() || errors.is_open()) {
    std::array<pollfd, 2> waited{pollfd{output.number(), POLLIN, 0}, pollfd{errors.number(), POLLIN, 0}};
    const int left = milliseconds_until(command.deadline);
    const int ready = left > 0 ? ::poll(waited.data(), waited.size(), left) : 0;
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    is_over = ready <= 0;
    is_too_much = result.output.size() + result.errors.size() > kLargestOutput;
    if (is_over || is_too_much) {
      break;
    }
    if (waited[0].revents != 0) {
      read_some(output, result.output);
    }
    if (waited[1].revents != 0) {
      read_some(errors, result.errors);
    }
  }
  // A program that has closed its output ends at once, or is waited for until the deadline.
  int status = 0;
  while (!is_over && !is_too_much) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) {
      result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      return result;
    }
    is_over = milliseconds_until(command.deadline) == 0;
    ::usleep(200);
  }
  ::kill(child, SIGKILL);
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return failed(is_too_much ? fmt::format("{} says more than {} MiB", name, kLargestOutput >> 20)
                            : fmt::format("{} gave no answer in time", name));
}

}  // namespace tesser::platform
