#include "platform/server/guardian_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/job/volume.h"

extern char** environ;

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

// What a guardian, and no learner's command, gets of the server's environment.
constexpr std::string_view kVariables[] = {"PATH",
                                           "HOME",
                                           "USER",
                                           "LOGNAME",
                                           "LANG",
                                           "LC_ALL",
                                           "TMPDIR",
                                           "TZ",
                                           "LD_LIBRARY_PATH",
                                           "PYTHONPATH",
                                           "SLURM_CONF",
                                           "KUBECONFIG",
                                           "SSL_CERT_FILE",
                                           "TESSER_PYTHON",
                                           "ASAN_OPTIONS"};

// What the system says of a process; nothing once it has ended. A stream would throw then.
std::string text_of(pid_t pid, const char* what) {
  std::string text;
  const int file = ::open(fmt::format("/proc/{}/{}", pid, what).c_str(), O_RDONLY | O_CLOEXEC);
  char piece[4096];
  for (ssize_t got = 0; file >= 0 && (got = ::read(file, piece, sizeof(piece))) > 0;) {
    text.append(piece, static_cast<std::size_t>(got));
  }
  if (file >= 0) {
    ::close(file);
  }
  return text;
}

pid_t parent_of(pid_t pid) {
  const std::string text = text_of(pid, "stat");
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  return name_end == std::string::npos || name_end + 4 > text.size() ? 0 : std::atoi(text.c_str() + name_end + 4);
}

int open_process(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

std::vector<std::string> words_of(pid_t pid) {
  const std::string text = text_of(pid, "cmdline");
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// The volume's name, of a guardian with a volume in the directory.
std::optional<std::string> volume_of(const std::vector<std::string>& words, const fs::path& volumes) {
  if (words.size() < 4 || words[1] != "guardian") {
    return std::nullopt;
  }
  const auto option = std::find(words.begin(), words.end(), "--volume");
  if (option == words.end() || option + 1 == words.end() || fs::path(*(option + 1)).parent_path() != volumes) {
    return std::nullopt;
  }
  return fs::path(*(option + 1)).filename().string();
}

}  // namespace

Result<GuardianProcess> GuardianProcess::start(const std::vector<std::string>& command, const fs::path& root) {
  const Volume volume(root);
  std::error_code error;
  fs::create_directories(volume.guardian(), error);
  std::vector<char*> words;
  for (const std::string& word : command) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  std::vector<char*> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view name = std::string_view(*each).substr(0, std::string_view(*each).find('='));
    if (std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables)) {
      variables.push_back(*each);
    }
  }
  variables.push_back(nullptr);

  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, volume.guardian_log().c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int code = ::posix_spawn(&pid, words[0], &files, &attributes, words.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (code != 0) {
    return tl::unexpected(file_error(command.front(), "start", code));
  }
  const int descriptor = open_process(pid);  // its number is its own until its end is taken
  if (descriptor < 0) {
    const int why = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return tl::unexpected(file_error(command.front(), "watch", why));
  }
  return GuardianProcess(pid, descriptor);
}

std::vector<std::pair<std::string, GuardianProcess>> GuardianProcess::find(const fs::path& volumes) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (fs::directory_iterator each("/proc", error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc() && pid != ::getpid()) {
      pids.push_back(pid);
    }
  }
  std::sort(pids.begin(), pids.end());
  std::vector<std::pair<std::string, GuardianProcess>> found;
  for (const pid_t pid : pids) {
    const auto name = volume_of(words_of(pid), volumes);
    // A guardian's child looks like it until it runs its own program.
    if (!name || volume_of(words_of(parent_of(pid)), volumes) == name) {
      continue;
    }
    const int descriptor = open_process(pid);
    if (descriptor < 0) {
      continue;
    }
    GuardianProcess process(pid, descriptor);
    // Once more, for the number may have passed to another process before the descriptor held it.
    if (const auto volume = volume_of(words_of(pid), volumes); volume && !process.has_ended()) {
      found.emplace_back(*volume, std::move(process));
    }
  }
  return found;
}

GuardianProcess::~GuardianProcess() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

bool GuardianProcess::has_ended() const {
  pollfd entry{descriptor_, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void GuardianProcess::kill() const { ::syscall(SYS_pidfd_send_signal, descriptor_, SIGKILL, nullptr, 0); }

std::string GuardianProcess::outcome() const {
  siginfo_t info{};
  if (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(descriptor_), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return "ended";  // a child of an earlier server
  }
  return info.si_code == CLD_EXITED ? fmt::format("ended with code {}", info.si_status)
                                    : fmt::format("was ended by signal {}", info.si_status);
}

}  // namespace tesser::platform
