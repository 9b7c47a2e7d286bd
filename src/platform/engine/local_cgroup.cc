#include "platform/engine/local_cgroup.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

// The system's files answer to one write of the whole value; 0, or the reason.
int write_value(const fs::path& path, const std::string& value) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return errno;
  }
  const bool written = ::write(descriptor, value.data(), value.size()) == static_cast<ssize_t>(value.size());
  const int error = written ? 0 : errno;
  ::close(descriptor);
  return error;
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) {
    words.push_back(word);
  }
  return words;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A mounted hierarchy, and the group of this process in it.
struct Mount {
  fs::path root;
  fs::path own;
  std::vector<std::string> controllers;  // of version 1
  bool is_version_2 = false;
};

std::vector<Mount> find_mounts() {
  std::vector<Mount> mounts;
  const std::vector<std::string> groups = split(read_text("/proc/self/cgroup"), '\n');
  for (const std::string& line : split(read_text("/proc/self/mountinfo"), '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4 || (dash[1] != "cgroup" && dash[1] != "cgroup2")) {
      continue;
    }
    Mount mount{words[4], words[4], {}, dash[1] == "cgroup2"};
    if (!mount.is_version_2) {
      mount.controllers = split(dash[3], ',');
    }
    for (const std::string& group : groups) {
      const std::size_t first = group.find(':');
      const std::size_t second = group.find(':', first + 1);
      if (first == std::string::npos || second == std::string::npos) {
        continue;
      }
      const std::vector<std::string> controllers = split(group.substr(first + 1, second - first - 1), ',');
      const bool is_same = mount.is_version_2
                               ? controllers.empty()
                               : std::any_of(controllers.begin(), controllers.end(),
                                             [&](const auto& each) { return has(mount.controllers, each); });
      // Paths count from the hierarchy's root, of which the mount may show a part only.
      std::string path = group.substr(second + 1);
      if (is_same && words[3] != "/" && path.starts_with(words[3])) {
        path = path.substr(words[3].size());
      }
      std::error_code error;
      const fs::path own = mount.root / fs::path(path).relative_path();
      if (is_same && fs::is_directory(own, error)) {
        mount.own = own;
      }
    }
    mounts.push_back(mount);
  }
  return mounts;
}

// A directory for groups below `place`, with the wish that groups in it can be limited.
bool make_parent(const fs::path& place, const std::string& name, bool is_version_2) {
  std::error_code error;
  fs::create_directory(place / name, error);
  if (error || ::access((place / name).c_str(), W_OK) != 0) {
    return false;
  }
  if (is_version_2) {
    for (const char* controller : {"+cpu", "+memory"}) {
      write_value(place / "cgroup.subtree_control", controller);
      write_value(place / name / "cgroup.subtree_control", controller);
    }
  }
  return true;
}

std::string group_of(const std::string& job, int attempt, int rank) {
  return fmt::format("{}.{}.{}", job, attempt, rank);
}

}  // namespace

LocalCgroups::LocalCgroups(const std::string& name) {
  bool processors = false;
  bool memory = false;
  for (const Mount& mount : find_mounts()) {
    if (!mount.is_version_2 && !has(mount.controllers, "cpu") && !has(mount.controllers, "memory")) {
      continue;
    }
    // Below our own group, whose limits then hold for learners too; where that may not be divided (version 2 refuses it
    // to a group with processes), below the root.
    std::optional<Hierarchy> best;
    for (const fs::path& place : {mount.own, mount.root}) {
      if (best && (best->limits_memory || !mount.is_version_2)) {
        break;
      }
      if (!make_parent(place, name, mount.is_version_2)) {
        continue;
      }
      Hierarchy hierarchy{place / name, mount.is_version_2, has(mount.controllers, "cpu"),
                          has(mount.controllers, "memory")};
      if (mount.is_version_2) {
        std::string enabled = read_text(place / name / "cgroup.subtree_control");
        std::replace(enabled.begin(), enabled.end(), '\n', ' ');
        hierarchy.limits_processors = has(split(enabled, ' '), "cpu");
        hierarchy.limits_memory = has(split(enabled, ' '), "memory");
      }
      if (!best || hierarchy.limits_memory) {
        best = hierarchy;
      }
      ::rmdir(hierarchy.parent.c_str());  // make() makes it again; one that is in use stays
    }
    if (best) {
      processors = processors || best->limits_processors;
      memory = memory || best->limits_memory;
      hierarchies_.push_back(*best);
    }
  }
  if (!processors || !memory) {
    missing_ = fmt::format(
        "learners are not limited in {}: this process may make no control groups for that; run it as root, or in a "
        "delegated group (systemd-run --user --scope -p Delegate=yes)",
        !processors && !memory ? "processors and memory"
        : !processors          ? "processors"
                               : "memory");
  }
}

std::vector<fs::path> LocalCgroups::make(const std::string& job, int attempt, int rank, const Resources& limits) {
  std::vector<fs::path> entrances;
  for (const Hierarchy& hierarchy : hierarchies_) {
    const fs::path group = hierarchy.parent / group_of(job, attempt, rank);
    // Somebody who removes the last group may take the parent away in between.
    std::error_code error;
    for (int i = 0; i < 5 && !fs::is_directory(group, error); ++i) {
      make_parent(hierarchy.parent.parent_path(), hierarchy.parent.filename(), hierarchy.is_version_2);
      fs::create_directory(group, error);
    }
    if (error) {
      continue;
    }
    constexpr std::int64_t kPeriod = 100'000;  // microseconds
    const std::int64_t quota = std::max<std::int64_t>(limits.millicpus * kPeriod / 1000, 1000);
    if (hierarchy.limits_processors && hierarchy.is_version_2) {
      write_value(group / "cpu.max", fmt::format("{} {}", quota, kPeriod));
    } else if (hierarchy.limits_processors) {
      write_value(group / "cpu.cfs_period_us", std::to_string(kPeriod));
      write_value(group / "cpu.cfs_quota_us", std::to_string(quota));
    }
    if (hierarchy.limits_memory && limits.memory_bytes > 0) {
      const std::string bytes = std::to_string(limits.memory_bytes);
      write_value(group / (hierarchy.is_version_2 ? "memory.max" : "memory.limit_in_bytes"), bytes);
      // Without swap beyond it, which would only make the machine slow.
      write_value(group / (hierarchy.is_version_2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes"),
                  hierarchy.is_version_2 ? "0" : bytes);
    }
    entrances.push_back(group / "cgroup.procs");
  }
  return entrances;
}

Result<void> LocalCgroups::end(const std::string& job, std::optional<int> attempt) {
  const std::string prefix = attempt ? fmt::format("{}.{}.", job, *attempt) : job + ".";
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (const Hierarchy& hierarchy : hierarchies_) {
    std::vector<fs::path> groups;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(hierarchy.parent, error)) {
      if (entry.is_directory(error) && entry.path().filename().string().starts_with(prefix)) {
        groups.push_back(entry.path());
      }
    }
    for (const fs::path& group : groups) {
      while (::rmdir(group.c_str()) != 0 && errno != ENOENT) {
        if (write_value(group / "cgroup.kill", "1") != 0) {
          for (const std::string& process : split(read_text(group / "cgroup.procs"), '\n')) {
            const auto number = static_cast<pid_t>(std::strtol(process.c_str(), nullptr, 10));
            if (number > 1) {  // 0 is a process that this one cannot see
              ::kill(number, SIGKILL);
            }
          }
        }
        if (std::chrono::steady_clock::now() > until) {
          return failed(fmt::format("{}: processes in it do not end although they were killed: {}", group.string(),
                                    std::strerror(errno)));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    ::rmdir(hierarchy.parent.c_str());
  }
  return {};
}

bool LocalCgroups::ran_out_of_memory(const std::string& job, int attempt, int rank) const {
  for (const Hierarchy& hierarchy : hierarchies_) {
    const fs::path group = hierarchy.parent / group_of(job, attempt, rank);
    for (const std::string& line :
         split(read_text(group / (hierarchy.is_version_2 ? "memory.events" : "memory.oom_control")), '\n')) {
      if (line.starts_with("oom_kill ") && line != "oom_kill 0") {
        return true;
      }
    }
  }
  return false;
}

}  // namespace tesser::platform
