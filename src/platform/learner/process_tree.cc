#include "platform/learner/process_tree.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <thread>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // of an environment: the system allows no more

// Files of /proc have no size.
std::string read_proc(const std::string& path) {
  std::string contents;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return contents;
  }
  std::size_t done = 0;
  while (done < kMostBytes) {
    contents.resize(done + 16'384);
    const ssize_t count = ::read(file, contents.data() + done, 16'384);
    if (count <= 0) {
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  ::close(file);
  contents.resize(done);
  return contents;
}

struct Status {
  char state = 'X';
  pid_t parent = 0;
  std::int64_t started = 0;
};

std::optional<Status> status_of(pid_t process) {
  const std::string text = read_proc(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  Status status;
  std::string_view rest = std::string_view(text).substr(name_end + 1);
  for (int field = 3; field <= 22 && !rest.empty(); ++field) {
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (field == 3 && !word.empty()) {
      status.state = word[0];
    } else if (field == 4) {
      std::from_chars(word.data(), word.data() + word.size(), status.parent);
    } else if (field == 22) {
      std::from_chars(word.data(), word.data() + word.size(), status.started);
    }
    rest.remove_prefix(word.size());
  }
  return status;
}

std::map<pid_t, Status> all_processes() {
  std::map<pid_t, Status> processes;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), none; !error && entry != none;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t process = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), process).ptr == name.data() + name.size() &&
        process > 0) {
      if (const auto status = status_of(process); status && status->state != 'Z' && status->state != 'X') {
        processes.emplace(process, *status);
      }
    }
  }
  return processes;
}

bool has_tag(pid_t process, const std::string& variable) {
  const std::string environment = read_proc(fmt::format("/proc/{}/environ", process));
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    if (std::string_view(environment).substr(at, end - at) == variable) {
      return true;
    }
    at = end + 1;
  }
  return false;
}

}  // namespace

std::vector<pid_t> ProcessTree::processes() const {
  const std::map<pid_t, Status> all = all_processes();
  std::set<pid_t> kept = kept_;
  for (pid_t above = ::getpid(); above > 0;) {
    kept.insert(above);
    const auto found = all.find(above);
    above = found != all.end() ? found->second.parent : 0;
  }
  const std::string variable = "TESSER_LEARNER=" + tag_;
  const auto descends = [&](pid_t process) {
    const pid_t self = ::getpid();
    for (std::size_t depth = 0; depth < all.size(); ++depth) {
      const auto found = all.find(process);
      if (found == all.end() || kept_.contains(process)) {
        return false;
      }
      process = found->second.parent;
      if (process == self) {
        return true;
      }
    }
    return false;
  };
  std::vector<pid_t> ours;
  for (const auto& [process, status] : all) {
    if (!kept.contains(process) && (descends(process) || has_tag(process, variable))) {
      ours.push_back(process);
    }
  }
  return ours;
}

void ProcessTree::signal_all(int number) const {
  for (const pid_t process : processes()) {
    ::kill(process, number);
  }
}

bool ProcessTree::kill_round() const {
  const std::vector<pid_t> left = processes();
  for (const pid_t process : left) {
    ::kill(process, SIGKILL);
  }
  if (!left.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return !left.empty();
}

std::optional<std::int64_t> start_ticks(pid_t process) {
  const auto status = status_of(process);
  return status ? std::optional(status->started) : std::nullopt;
}

}  // namespace tesser::platform
