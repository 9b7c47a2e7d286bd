#include "platform/learner/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/learner/learner_command.h"

namespace tesser::platform {
namespace {

// As a process that was just started expects them.
void reset_signals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) {
      ::signal(number, SIG_DFL);
    }
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> made;
  for (std::string& text : texts) {
    made.push_back(text.data());
  }
  made.push_back(nullptr);
  return made;
}

// A small file of /proc or /sys, which have no size; empty when it cannot be read.
std::string system_file(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return "";
  }
  std::string text(16'384, '\0');
  const ssize_t count = ::read(file, text.data(), text.size());
  ::close(file);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

std::optional<std::int64_t> kills_in(const std::filesystem::path& events) {
  constexpr std::string_view kKey = "oom_kill ";
  const std::string text = system_file(events);
  const std::size_t at = text.find(kKey);
  std::int64_t number = 0;
  if (at == std::string::npos ||
      std::from_chars(text.data() + at + kKey.size(), text.data() + text.size(), number).ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

Result<pid_t> start_child(const ChildStart& start) {
  const auto path = start.environment.find("PATH");
  TESSER_ASSIGN_OR_RETURN(
      const std::filesystem::path program,
      find_program(start.words[0], start.directory, path != start.environment.end() ? path->second : std::string()));
  // Nothing may be allocated between fork and exec.
  std::vector<std::string> words = start.words;
  std::vector<std::string> variables;
  for (const auto& [name, value] : start.environment) {
    variables.push_back(name + "=" + value);
  }
  const std::vector<char*> arguments = pointers(words);
  const std::vector<char*> environment = pointers(variables);
  const std::string directory = start.directory;
  const int output = ::open(start.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (output < 0) {
    return tl::unexpected<Error>(Error{ErrorCode::kFailed, file_error(start.output, "write", errno).message});
  }
  int report[2];
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::pipe2(report, O_CLOEXEC) != 0) {
    const int reason = errno;
    ::close(output);
    if (nothing >= 0) {
      ::close(nothing);
    }
    return failed(fmt::format("cannot start the command: {}", std::generic_category().message(reason)));
  }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) {
      ::_exit(127);
    }
    ::setpgid(0, start.group);
    reset_signals();
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    if (::chdir(directory.c_str()) == 0) {
      ::execve(program.c_str(), arguments.data(), environment.data());
    }
    const int reason = errno;
    [[maybe_unused]] const ssize_t written = ::write(report[1], &reason, sizeof reason);
    ::_exit(127);
  }
  const int fork_reason = errno;
  ::close(output);
  ::close(nothing);
  ::close(report[1]);
  if (child < 0) {
    ::close(report[0]);
    return failed(fmt::format("cannot start the command: {}", std::generic_category().message(fork_reason)));
  }
  ::setpgid(child, start.group != 0 ? start.group : child);  // whichever of us is first
  int reason = 0;
  ssize_t count;
  do {
    count = ::read(report[0], &reason, sizeof reason);
  } while (count < 0 && errno == EINTR);
  ::close(report[0]);
  if (count != sizeof reason) {
    return child;
  }
  const std::string words_of = std::generic_category().message(reason);
  if (reason == ENOEXEC) {
    return invalid_input(
        fmt::format("{} is no program and has no #! line; name what runs it first, such as python or "
                    "sh",
                    program.string()));
  }
  if (reason == ENOENT) {
    return invalid_input(fmt::format("{}: what its #! line names is not there, or its loader", program.string()));
  }
  if (reason == E2BIG) {
    return invalid_input(fmt::format("{}: arguments and environment are too long", program.string()));
  }
  const bool is_users = reason == EACCES || reason == EPERM || reason == ENOTDIR || reason == ELOOP;
  return tl::unexpected<Error>(Error{is_users ? ErrorCode::kInvalidInput : ErrorCode::kFailed,
                                     fmt::format("cannot start {}: {}", program.string(), words_of)});
}

Result<pid_t> fork_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child < 0) {
    return failed(fmt::format("cannot start a process: {}", std::generic_category().message(errno)));
  }
  if (child == 0) {
    ::_exit(body());
  }
  return child;
}

std::optional<std::int64_t> killed_for_memory() {
  const std::string groups = system_file("/proc/self/cgroup");
  std::string_view rest = groups;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) {
      continue;
    }
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const std::string group(line.substr(second + 1));
    if (controllers.empty()) {
      if (const auto number = kills_in("/sys/fs/cgroup" + group + "/memory.events")) {
        return number;
      }
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      if (const auto number = kills_in("/sys/fs/cgroup/memory" + group + "/memory.oom_control")) {
        return number;
      }
    }
  }
  // A container has its own group where others have the first one of all, and on version 1 still the other's name for
  // it.
  for (const char* file : {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}) {
    if (const auto number = kills_in(file)) {
      return number;
    }
  }
  return std::nullopt;
}

std::string signal_name(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

}  // namespace tesser::platform
