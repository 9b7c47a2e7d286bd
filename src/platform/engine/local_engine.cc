#include "platform/engine/local_engine.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/engine/local_cgroup.h"
#include "platform/engine/local_process.h"
#include "platform/job/learner_user.h"
#include "platform/job/volume.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* kTagVariable = "TESSER_LEARNER";
constexpr std::string_view kRemoved = "removed-";

std::string tag_of(const std::string& job, int attempt, int rank) {
  return fmt::format("{}/{}/{}", job, attempt, rank);
}

std::int64_t memory_of_this_machine() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
}

Node this_machine() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof(name) - 1);
  Node node;
  node.name = name;
  node.capacity.millicpus = 1000 * static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  node.capacity.memory_bytes = memory_of_this_machine();
  return node;
}

std::string amount_text(const Resources& resources) {
  std::string text = fmt::format("{:g} cpus", static_cast<double>(resources.millicpus) / 1000);
  if (resources.memory_bytes > 0) {
    text += fmt::format(", {:.3g} GiB of memory", static_cast<double>(resources.memory_bytes) / (1 << 30));
  }
  for (const auto& [type, count] : resources.accelerators) {
    text += fmt::format(", {} {}", count, type);
  }
  return text;
}

// Whether `count` learners fit on an empty node.
bool fits(const Resources& each, std::int64_t count, const Resources& capacity) {
  for (const auto& [type, amount] : each.accelerators) {
    const auto found = capacity.accelerators.find(type);
    if (amount * count > (found != capacity.accelerators.end() ? found->second : 0)) {
      return false;
    }
  }
  return each.millicpus * count <= capacity.millicpus &&
         (capacity.memory_bytes == 0 || each.memory_bytes * count <= capacity.memory_bytes);
}

// The attempt that a directory is of, "3", or "removed-3-..." for one that is being removed.
std::optional<int> attempt_of(std::string_view name) {
  if (name.starts_with(kRemoved)) {
    name.remove_prefix(kRemoved.size());
    name = name.substr(0, name.find('-'));
  }
  int attempt = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), attempt);
  return parsed.ec == std::errc() && parsed.ptr == name.data() + name.size() ? std::optional(attempt) : std::nullopt;
}

struct Noted {
  int attempt = 0;
  int rank = 0;
  std::string node;
  ProcessIdentity identity;
};

class LocalEngine : public Engine {
 public:
  LocalEngine(EngineSettings settings, std::vector<Node> nodes)
      : settings_(std::move(settings)), nodes_(std::move(nodes)), cgroups_(cgroup_name(settings_.state_directory)) {
    // Once a process, however many engines it makes.
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    if (!cgroups_.missing().empty() && !said.test_and_set()) {
      std::fprintf(stderr, "tesser: %s\n", cgroups_.missing().c_str());
    }
  }

  std::string name() const override { return "local"; }

  Result<std::vector<Node>> nodes() override {
    std::vector<Node> nodes = nodes_;
    for (Node& node : nodes) {
      if (auto reason = why_not_ready(node.name)) {
        node.is_ready = false;
        node.not_ready = std::move(*reason);
      }
    }
    return nodes;
  }

  Result<void> deploy(const Deployment& deployment) override {
    Deployment placed = deployment;
    const fs::path directory = directory_of(deployment.job) / std::to_string(deployment.attempt);
    // What another process began stays as it began it: nodes chosen by the system are chosen once.
    if (const auto begun = read_file(directory / "deployment.json")) {
      TESSER_ASSIGN_OR_RETURN(placed, deployment_from_json(*begun));
    }
    TESSER_RETURN_IF_ERROR(choose_nodes(placed));
    std::error_code error;
    fs::create_directories(directory, error);
    if (!error) {
      const ActingAs learner{Volume(placed.volume)};
      fs::create_directories(Volume(placed.volume).attempt(placed.attempt), error);
    }
    if (error) {
      return failed(fmt::format("{}: cannot be made: {}", directory.string(), error.message()));
    }
    if (auto outcome = start_all(placed, directory); !outcome) {
      // The first reason is the one to tell, whatever becomes of the removal; who comes next tries it again.
      (void)remove(deployment.job, deployment.team, deployment.attempt);
      return outcome;
    }
    return {};
  }

  Result<std::vector<LearnerStatus>> learners(const std::string& job, const std::string& team) override {
    std::vector<LearnerStatus> statuses;
    std::set<std::pair<int, int>>& alive = alive_[job];
    alive.clear();
    for (const Noted& each : noted(job, false)) {
      LearnerStatus status{each.attempt, each.rank, LearnerState::kRunning, each.node, ""};
      const bool lives = is_alive(each.identity);
      if (lives) {
        alive.emplace(each.attempt, each.rank);
      }
      if (auto reason = why_not_ready(each.node)) {
        status.state = LearnerState::kLost;
        status.reason = fmt::format("node {} is not ready: {}", each.node, *reason);
      } else if (!lives) {
        status.state = LearnerState::kEnded;
        if (cgroups_.ran_out_of_memory(job, each.attempt, each.rank)) {
          status.reason = "out of memory";
        }
      }
      statuses.push_back(std::move(status));
    }
    return statuses;
  }

  void wait(const std::string& job, const std::string& team, milliseconds time) override {
    const auto until = std::chrono::steady_clock::now() + time;
    std::vector<pollfd> watched;
    const int changes = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    // Nodes that come and go, and learners: their notes appear, and attempts are removed.
    std::vector<fs::path> directories{settings_.state_directory / "nodes", settings_.state_directory / "jobs",
                                      directory_of(job)};
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory_of(job), error)) {
      directories.push_back(entry.path());
    }
    for (const fs::path& directory : directories) {
      ::inotify_add_watch(changes, directory.c_str(), IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM);
    }
    watched.push_back({changes, POLLIN, 0});
    std::set<std::pair<int, int>> alive;
    for (const Noted& each : noted(job, false)) {
      const int process = static_cast<int>(::syscall(SYS_pidfd_open, each.identity.process, 0U));
      if (process >= 0 && is_alive(each.identity)) {
        watched.push_back({process, POLLIN, 0});
        alive.emplace(each.attempt, each.rank);
      } else if (process >= 0) {
        ::close(process);
      }
    }
    // What has changed since the caller looked is news, too.
    const auto known = alive_.find(job);
    if (known == alive_.end() || known->second == alive) {
      const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
      ::poll(watched.data(), watched.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    }
    for (const pollfd& each : watched) {
      ::close(each.fd);
    }
  }

  Result<void> remove(const std::string& job, const std::string& team, std::optional<int> attempt) override {
    const fs::path directory = directory_of(job);
    // Under another name first: a learner that is about to start finds no place for its note any more, and ends.
    static std::atomic<unsigned> count{0};
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(kRemoved) || !is_of(attempt, attempt_of(name))) {
        continue;
      }
      fs::rename(entry.path(), directory / fmt::format("{}{}-{}-{}", kRemoved, name, ::getpid(), ++count), error);
      if (error && error != std::errc::no_such_file_or_directory) {
        return failed(fmt::format("{}: cannot be removed: {}", entry.path().string(), error.message()));
      }
    }
    std::vector<Noted> known = noted(job, true);
    std::erase_if(known, [&](const Noted& each) { return !is_of(attempt, each.attempt); });

    TESSER_RETURN_IF_ERROR(cgroups_.end(job, attempt));
    const std::string prefix = attempt ? fmt::format("{}/{}/", job, *attempt) : job + "/";
    TESSER_RETURN_IF_ERROR(end_processes([&](const ProcessFacts& facts) {
      const auto tag = variable_of(facts.environment, kTagVariable);
      return (tag && tag->starts_with(prefix)) ||
             std::any_of(known.begin(), known.end(), [&](const Noted& each) { return is_in_session(facts, each); });
    }));
    for (const Noted& each : known) {
      is_alive(each.identity);  // for its code, if it is a child of ours
    }

    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(kRemoved) && is_of(attempt, attempt_of(name))) {
        fs::remove_all(entry.path(), error);
      }
    }
    ::rmdir(directory.c_str());  // stays while it has other attempts
    return {};
  }

 private:
  static std::string cgroup_name(const fs::path& state_directory) {
    std::uint64_t hash = 14695981039346656037U;
    for (const char byte : state_directory.string()) {
      hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
    }
    return fmt::format("tesser-{:016x}", hash);
  }

  static bool is_of(std::optional<int> wanted, std::optional<int> attempt) {
    return attempt && (!wanted || *wanted == *attempt);
  }

  // A session keeps its number as long as anything is in it, also when its leader has ended: only a leader that is
  // there and began at another time says that the number has been given away again.
  static bool is_in_session(const ProcessFacts& facts, const Noted& learner) {
    const ProcessIdentity& leader = learner.identity;
    if (leader.boot != boot_identifier()) {
      return false;
    }
    if (facts.process == leader.process) {
      return facts.status.start_ticks == leader.start_ticks;
    }
    if (facts.status.session != leader.process || facts.status.start_ticks < leader.start_ticks) {
      return false;
    }
    const auto status = process_status(leader.process);
    return !status || status->start_ticks == leader.start_ticks;
  }

  fs::path directory_of(const std::string& job) const { return settings_.state_directory / "jobs" / job; }

  std::optional<std::string> why_not_ready(const std::string& node) const {
    auto reason = read_file(settings_.state_directory / "nodes" / node);
    if (!reason) {
      return std::nullopt;
    }
    reason->erase(std::find(reason->begin(), reason->end(), '\n'), reason->end());
    return reason->empty() ? "taken out" : std::move(*reason);
  }

  // All learners of a job that have started; with those of attempts that are being removed, if asked for.
  std::vector<Noted> noted(const std::string& job, bool with_removed) const {
    std::vector<Noted> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory_of(job), error)) {
      const std::string name = entry.path().filename();
      const auto attempt = attempt_of(name);
      if (!attempt || (name.starts_with(kRemoved) && !with_removed)) {
        continue;
      }
      const auto text = read_file(entry.path() / "deployment.json");
      const auto deployment = text ? deployment_from_json(*text) : tl::unexpected(text.error());
      for (std::size_t rank = 0; deployment && rank < deployment->nodes.size(); ++rank) {
        if (auto identity = read_note(note_of(entry.path(), rank))) {
          found.push_back({*attempt, static_cast<int>(rank), deployment->nodes[rank], std::move(*identity)});
        }
      }
    }
    std::sort(found.begin(), found.end(), [](const Noted& a, const Noted& b) {
      return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
    });
    return found;
  }

  static fs::path note_of(const fs::path& directory, std::size_t rank) {
    return directory / fmt::format("learner-{}.json", rank);
  }

  Result<void> choose_nodes(Deployment& deployment) const {
    std::map<std::string, std::int64_t> learners_on;
    for (std::string& name : deployment.nodes) {
      for (std::size_t i = 0; name.empty() && i < nodes_.size(); ++i) {
        if (fits(deployment.each, learners_on[nodes_[i].name] + 1, nodes_[i].capacity) &&
            !why_not_ready(nodes_[i].name)) {
          name = nodes_[i].name;
        }
      }
      if (name.empty()) {
        return failed(fmt::format("no node that is ready has {} for each of {} learners", amount_text(deployment.each),
                                  deployment.nodes.size()));
      }
      const auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& each) { return each.name == name; });
      if (node == nodes_.end()) {
        return invalid_input(fmt::format("there is no node '{}' on this machine", name));
      }
      if (!fits(deployment.each, ++learners_on[name], node->capacity)) {
        return invalid_input(fmt::format("node {} has {}; {} learners of {} each do not fit on it", name,
                                         amount_text(node->capacity), learners_on[name], amount_text(deployment.each)));
      }
      if (const auto reason = why_not_ready(name)) {
        return failed(fmt::format("node {} is not ready: {}", name, *reason));
      }
    }
    return {};
  }

  Result<void> start_all(const Deployment& deployment, const fs::path& directory) {
    if (!fs::exists(directory / "deployment.json")) {
      TESSER_RETURN_IF_ERROR(write_file_atomically(directory / "deployment.json", to_json(deployment)));
    }
    for (std::size_t rank = 0; rank < deployment.nodes.size(); ++rank) {
      const fs::path note = note_of(directory, rank);
      if (fs::exists(note)) {
        continue;
      }
      ProcessStart start;
      start.command = deployment.command;
      start.environment = environment_of(deployment, static_cast<int>(rank));
      start.directory = deployment.volume;
      start.output = Volume(deployment.volume).learner_output(deployment.attempt, static_cast<int>(rank));
      start.cgroups = cgroups_.make(deployment.job, deployment.attempt, static_cast<int>(rank), deployment.each);
      start.note = note;
      start.user = learner_user_of(Volume(deployment.volume));
      TESSER_RETURN_IF_ERROR(start_process(start));
    }
    return {};
  }

  static std::vector<std::string> environment_of(const Deployment& deployment, int rank) {
    std::map<std::string, std::string> variables;
    // What programs need to find each other and to write text; nothing else of ours is a learner's business.
    for (const char* name : {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"}) {
      if (const char* value = std::getenv(name)) {
        variables[name] = value;
      }
    }
    for (const auto& [name, value] : deployment.environment) {
      variables[name] = value;
    }
    variables["TESSER_RANK"] = std::to_string(rank);
    variables[kTagVariable] = tag_of(deployment.job, deployment.attempt, rank);
    std::vector<std::string> entries;
    for (const auto& [name, value] : variables) {
      entries.push_back(name + "=" + value);
    }
    return entries;
  }

  const EngineSettings settings_;
  const std::vector<Node> nodes_;
  LocalCgroups cgroups_;
  std::map<std::string, std::set<std::pair<int, int>>> alive_;  // attempt and rank, when learners() was asked last
};

}  // namespace

Result<std::unique_ptr<Engine>> make_local_engine(const EngineSettings& settings) {
  EngineSettings complete = settings;
  std::error_code error;
  fs::create_directories(settings.state_directory / "jobs", error);
  fs::create_directories(settings.state_directory / "nodes", error);
  if (!error) {
    complete.state_directory = fs::canonical(settings.state_directory, error);
  }
  if (settings.state_directory.empty() || error) {
    return invalid_input(fmt::format("'{}': the engine 'local' cannot keep what it started here: {}",
                                     settings.state_directory.string(), error.message()));
  }
  std::vector<Node> nodes = settings.nodes;
  if (nodes.empty()) {
    nodes.push_back(this_machine());
  }
  std::set<std::string> names;
  for (Node& node : nodes) {
    if (node.name.empty() || node.name.find('/') != std::string::npos || !names.insert(node.name).second) {
      return invalid_input(fmt::format("node '{}': names of nodes are different words without '/'", node.name));
    }
    if (node.capacity.memory_bytes == 0) {
      node.capacity.memory_bytes = memory_of_this_machine();
    }
  }
  return std::make_unique<LocalEngine>(std::move(complete), std::move(nodes));
}

}  // namespace tesser::platform
