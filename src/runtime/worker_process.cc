#include "runtime/worker_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"

namespace tesser::runtime {
namespace {

constexpr std::uint64_t kLargestLog = std::uint64_t{64} << 20;

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) {
    pointers.push_back(string.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

WorkerProcess::WorkerProcess(pid_t id, std::filesystem::path log, int input, bool relays)
    : id_(id), input_(input), relays_(relays), log_(std::move(log)) {}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      input_(std::exchange(other.input_, -1)),
      relays_(other.relays_),
      log_(std::move(other.log_)),
      status_(other.status_) {}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(input_, other.input_);
  std::swap(relays_, other.relays_);
  std::swap(log_, other.log_);
  std::swap(status_, other.status_);
  return *this;
}

WorkerProcess::~WorkerProcess() {
  close_input();
  if (id_ > 0 && !status_) {
    kill();
    ::waitpid(id_, nullptr, 0);
  }
}

Result<WorkerProcess> WorkerProcess::start(const ProcessOptions& options) {
  const int log = ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (log < 0) {
    return tl::unexpected<Error>(file_error(options.log, "write", errno));
  }
  // A pair of sockets and not a pipe: writing to one whose other end is gone is an error and no signal.
  int input[2] = {-1, -1};
  if (options.input && ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) {
    const int error = errno;
    ::close(log);
    return failed(fmt::format("no process can be started for a worker: {}", std::strerror(error)));
  }
  const std::string not_started = fmt::format("{} is not on this machine, or cannot be run\n", options.command.front());
  // All memory is taken before the fork: between it and exec only system calls are safe.
  std::vector<std::string> words = options.command;
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  variables.insert(variables.end(), options.environment.begin(), options.environment.end());
  const std::vector<char*> arguments = pointers_to(words);
  const std::vector<char*> environment = pointers_to(variables);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Ctrl-C and a signal to the whole group are the coordinator's to act on: all workers stop after one step.
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGINT, &ignore, nullptr);
    ::sigaction(SIGTERM, &ignore, nullptr);
    ::sigaction(SIGHUP, &ignore, nullptr);
    ::signal(SIGPIPE, SIG_DFL);  // which this program may ignore, and a launcher expects
    if (::getppid() != parent || ::dup2(log, STDOUT_FILENO) < 0 || ::dup2(log, STDERR_FILENO) < 0 ||
        (input[1] >= 0 && ::dup2(input[1], STDIN_FILENO) < 0)) {
      ::_exit(1);
    }
    ::execvpe(arguments[0], arguments.data(), environment.data());
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, not_started.data(), not_started.size());
    ::_exit(127);
  }
  const int error = errno;
  ::close(log);
  if (input[1] >= 0) {
    ::close(input[1]);
  }
  if (child < 0) {
    if (input[0] >= 0) {
      ::close(input[0]);
    }
    return failed(fmt::format("no process can be started for a worker: {}", std::strerror(error)));
  }
  WorkerProcess process(child, options.log, input[0], options.relays);
  if (options.input) {
    // Short enough for the socket's buffer. Where the process is gone already, its end says more than this would.
    [[maybe_unused]] const ssize_t sent = ::send(input[0], options.input->data(), options.input->size(), MSG_NOSIGNAL);
  }
  return process;
}

void WorkerProcess::close_input() {
  if (input_ >= 0) {
    ::close(std::exchange(input_, -1));
  }
}

std::optional<std::string> WorkerProcess::how_it_ended() {
  if (!status_) {
    int status = 0;
    if (::waitpid(id_, &status, WNOHANG) != id_) {
      return std::nullopt;
    }
    status_ = status;
  }
  constexpr int kShellsSignals = 128;
  const bool relayed = relays_ && WIFEXITED(*status_) && WEXITSTATUS(*status_) > kShellsSignals &&
                       WEXITSTATUS(*status_) < kShellsSignals + 64;
  if (WIFSIGNALED(*status_) || relayed) {
    const int signal = relayed ? WEXITSTATUS(*status_) - kShellsSignals : WTERMSIG(*status_);
    return fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(*status_));
}

bool WorkerProcess::is_stopped() const {
  // "PID (NAME) STATE ...": the name may hold anything.
  std::ifstream file(fmt::format("/proc/{}/stat", id_));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'T';
}

void WorkerProcess::kill() {
  close_input();
  if (!status_) {
    ::kill(id_, SIGKILL);
  }
}

std::string WorkerProcess::last_lines(int count) const {
  const Result<std::string> text = read_file(log_, kLargestLog);
  if (!text || text->find_first_not_of(" \n") == std::string::npos) {
    return "";
  }
  const std::size_t end = text->find_last_not_of(" \n") + 1;
  std::size_t begin = end;
  for (int line = 0; line < count && begin > 0; ++line) {
    const std::size_t newline = text->rfind('\n', begin - 1);
    begin = newline == std::string::npos ? 0 : newline;
  }
  std::string lines = text->substr(begin, end - begin);
  if (lines.front() != '\n') {
    lines.insert(0, "\n");
  }
  std::string indented;
  for (const char c : lines) {
    indented += c;
    if (c == '\n') {
      indented += "  | ";
    }
  }
  return indented;
}

}  // namespace tesser::runtime
