#include "platform/engine/local_process.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_reader.h"

namespace tesser::platform {
namespace {

// Reads what /proc gives, whose files have no size; nothing when the process is gone.
std::optional<std::string> read_system_file(const char* path) {
  const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return std::nullopt;
  }
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(descriptor, buffer, sizeof(buffer))) > 0 || (got < 0 && errno == EINTR)) {
    text.append(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  ::close(descriptor);
  return got < 0 ? std::nullopt : std::optional(std::move(text));
}

// Field `index` (from 3) of /proc/PID/stat. The second, the command's name, may hold spaces and parentheses. Safe in a
// child of a process with threads.
std::uint64_t stat_field(std::string_view text, int index, char* letter = nullptr) {
  const std::size_t name_end = text.rfind(')');
  std::string_view rest = name_end == std::string_view::npos ? std::string_view() : text.substr(name_end + 1);
  for (int field = 3; !rest.empty(); ++field) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (field == index) {
      if (letter != nullptr) {
        *letter = word.empty() ? '?' : word[0];
      }
      std::uint64_t number = 0;
      std::from_chars(word.data(), word.data() + word.size(), number);
      return number;
    }
    rest.remove_prefix(word.size());
  }
  return 0;
}
constexpr int kStateField = 3;
constexpr int kSessionField = 6;
constexpr int kStartField = 22;

// What the child tells by the pipe when it could not become the command.
struct ChildFailure {
  enum Step : int { kNote, kExists, kCommand } step = kNote;
  int error_number = 0;
};

[[noreturn]] void give_up(int pipe, ChildFailure::Step step, int error_number) {
  const ChildFailure failure{step, error_number};
  (void)!::write(pipe, &failure, sizeof(failure));
  ::_exit(127);
}

// The child between fork and exec: system calls only, since other threads of the parent may have held any lock.
struct ChildPlan {
  const char* directory;
  const char* output;
  const char* note;
  const char* note_partial;
  std::string_view boot;
  const std::vector<const char*>& cgroups;
  const LearnerUser& user;
  const char* program;
  char* const* arguments;
  char* const* environment;
  int pipe;
};

char* append(char* to, std::string_view text) { return std::copy(text.begin(), text.end(), to); }
char* append(char* to, std::uint64_t number) { return std::to_chars(to, to + 20, number).ptr; }

void write_note(const ChildPlan& plan) {
  char text[4096];
  const int stat = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t got = stat < 0 ? -1 : ::read(stat, text, sizeof(text));
  if (got <= 0) {
    give_up(plan.pipe, ChildFailure::kNote, errno);
  }
  const std::uint64_t start = stat_field({text, static_cast<std::size_t>(got)}, kStartField);
  char* end = append(append(text, "{\"process\":"), static_cast<std::uint64_t>(::getpid()));
  end = append(append(append(end, ",\"start_ticks\":"), start), ",\"boot\":\"");
  end = append(append(end, plan.boot), "\"}\n");
  const auto size = static_cast<std::size_t>(end - text);
  const int note = ::open(plan.note_partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (note < 0 || ::write(note, text, size) != static_cast<ssize_t>(size)) {
    give_up(plan.pipe, ChildFailure::kNote, errno);
  }
  // Unlike a rename, a link never takes the place of another.
  const bool linked = ::link(plan.note_partial, plan.note) == 0;
  const int link_error = errno;
  ::unlink(plan.note_partial);
  if (!linked) {
    give_up(plan.pipe, link_error == EEXIST ? ChildFailure::kExists : ChildFailure::kNote, link_error);
  }
}

[[noreturn]] void become_command(const ChildPlan& plan) {
  ::setsid();
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < 65; ++signal) {
    ::sigaction(signal, &standard, nullptr);
  }
  for (const char* cgroup : plan.cgroups) {
    const int procs = ::open(cgroup, O_WRONLY | O_CLOEXEC);
    (void)!::write(procs, "0", 1);
  }
  write_note(plan);
  // From here on nothing is opened that the learner could not open itself.
  if (!become(plan.user)) {
    give_up(plan.pipe, ChildFailure::kNote, errno);
  }
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  int output = ::open(plan.output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  output = output < 0 ? nothing : output;
  ::dup2(nothing, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  if (plan.directory[0] != '\0' && ::chdir(plan.directory) != 0) {
    give_up(plan.pipe, ChildFailure::kNote, errno);
  }
  constexpr unsigned int kCloseOnExec = 4;
  ::syscall(SYS_close_range, 3U, ~0U, kCloseOnExec);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(plan.program, plan.arguments, plan.environment);
  give_up(plan.pipe, ChildFailure::kCommand, errno);
}

// Where the command is: PATH is that of the learner's environment.
std::string program_of(const ProcessStart& start) {
  const std::string& name = start.command.front();
  if (name.find('/') != std::string::npos) {
    return name;
  }
  for (const std::string& entry : start.environment) {
    if (entry.starts_with("PATH=")) {
      std::string_view rest = std::string_view(entry).substr(5);
      while (!rest.empty()) {
        const std::string_view folder = rest.substr(0, rest.find(':'));
        rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
        const std::string candidate = std::string(folder) + "/" + name;
        if (::access(candidate.c_str(), X_OK) == 0) {
          return candidate;
        }
      }
    }
  }
  return name;
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

const std::string& boot_identifier() {
  static const std::string identifier = [] {
    std::string text = read_system_file("/proc/sys/kernel/random/boot_id").value_or("");
    text.erase(std::find(text.begin(), text.end(), '\n'), text.end());
    return text;
  }();
  return identifier;
}

std::optional<ProcessStatus> process_status(pid_t process) {
  const auto text = read_system_file(fmt::format("/proc/{}/stat", process).c_str());
  if (!text || text->empty()) {
    return std::nullopt;
  }
  ProcessStatus status;
  char letter = '?';
  stat_field(*text, kStateField, &letter);
  status.has_ended = letter == 'Z' || letter == 'X';
  status.session = static_cast<pid_t>(stat_field(*text, kSessionField));
  status.start_ticks = stat_field(*text, kStartField);
  return status;
}

bool is_alive(const ProcessIdentity& identity) {
  if (identity.boot != boot_identifier()) {
    return false;
  }
  const auto status = process_status(identity.process);
  if (!status || status->start_ticks != identity.start_ticks) {
    return false;
  }
  if (status->has_ended) {
    ::waitpid(identity.process, nullptr, WNOHANG);
  }
  return !status->has_ended;
}

Result<StartOutcome> start_process(const ProcessStart& start) {
  static std::atomic<unsigned> count{0};
  const std::string program = program_of(start);
  const std::string note_partial = fmt::format("{}.partial-{}-{}", start.note.string(), ::getpid(), ++count);
  const std::vector<char*> arguments = pointers_to(start.command);
  const std::vector<char*> environment = pointers_to(start.environment);
  std::vector<const char*> cgroups;
  for (const auto& cgroup : start.cgroups) {
    cgroups.push_back(cgroup.c_str());
  }
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) {
    return failed(fmt::format("cannot start '{}': {}", program, std::strerror(errno)));
  }
  const ChildPlan plan{start.directory.c_str(),
                       start.output.c_str(),
                       start.note.c_str(),
                       note_partial.c_str(),
                       boot_identifier(),
                       cgroups,
                       start.user,
                       program.c_str(),
                       arguments.data(),
                       environment.data(),
                       pipe[1]};
  const pid_t child = ::fork();
  if (child == 0) {
    become_command(plan);
  }
  ::close(pipe[1]);
  if (child < 0) {
    ::close(pipe[0]);
    return failed(fmt::format("cannot start '{}': {}", program, std::strerror(errno)));
  }
  ChildFailure failure;
  ssize_t got = 0;
  do {
    got = ::read(pipe[0], &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  ::close(pipe[0]);
  if (got == 0) {  // closed as it became the command
    return StartOutcome::kStarted;
  }
  ::waitpid(child, nullptr, 0);
  if (got == sizeof(failure) && failure.step == ChildFailure::kExists) {
    return StartOutcome::kNoteExists;
  }
  const std::string reason = std::strerror(got == sizeof(failure) ? failure.error_number : EIO);
  if (got == sizeof(failure) && failure.step == ChildFailure::kCommand) {
    return invalid_input(fmt::format("cannot start '{}': {}", program, reason));
  }
  return failed(fmt::format("{}: cannot start a learner that is noted here: {}", start.note.string(), reason));
}

std::optional<ProcessIdentity> read_note(const std::filesystem::path& note) {
  const auto text = read_file(note);
  if (!text) {
    return std::nullopt;
  }
  auto identity = read_json_object<ProcessIdentity>(*text, note, [](JsonReader& reader, ProcessIdentity& value) {
    value.process = static_cast<pid_t>(reader.integer("process", 1));
    value.start_ticks = static_cast<std::uint64_t>(reader.integer("start_ticks", 0));
    value.boot = reader.string("boot");
  });
  return identity ? std::optional(std::move(*identity)) : std::nullopt;
}

Result<void> end_processes(const std::function<bool(const ProcessFacts&)>& is_meant) {
  // A process in an uninterruptible wait (a disk that hangs) ends only after it.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int round = 0;; ++round) {
    int found = 0;
    pid_t last = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
      const std::string name = entry.path().filename();
      pid_t process = 0;
      const auto parsed = std::from_chars(name.data(), name.data() + name.size(), process);
      if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size() || process == ::getpid()) {
        continue;
      }
      // The descriptor holds on to the process that is judged next, whatever becomes of its number.
      const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, process, 0U));
      if (descriptor < 0) {
        continue;
      }
      const auto status = process_status(process);
      if (status && !status->has_ended) {
        const auto environment = read_system_file(fmt::format("/proc/{}/environ", process).c_str());
        if (is_meant({process, *status, environment ? std::string_view(*environment) : std::string_view()})) {
          ++found;
          last = process;
          ::syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, nullptr, 0U);
        }
      }
      ::close(descriptor);
    }
    if (found == 0) {
      return {};
    }
    if (std::chrono::steady_clock::now() > until) {
      return failed(fmt::format("process {} does not end although it was killed", last));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round < 5 ? 1 : 10));
  }
}

std::optional<std::string_view> variable_of(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const std::string_view entry = environment.substr(0, environment.find('\0'));
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
    environment.remove_prefix(std::min(entry.size() + 1, environment.size()));
  }
  return std::nullopt;
}

}  // namespace tesser::platform
