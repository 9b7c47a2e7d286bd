#include "platform/engine/slurm_engine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/engine/command_runner.h"
#include "platform/engine/slurm_attempt.h"
#include "platform/engine/slurm_text.h"
#include "platform/job/learner_user.h"

extern char** environ;

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookAtMarks{50};
// How long an answer of Slurm's is good for while no mark appears: where all learners run, or wait, and where not. The
// longer one is also how long partitions stay what they were.
constexpr milliseconds kSteady{5000};
constexpr milliseconds kUnsteady{500};
constexpr milliseconds kAskAgain{100};
// By the controller: scancel itself would ask each node of a step, and wait 11 s for one that does not answer.
constexpr std::array kKill = {"scancel", "--quiet", "--ctld", "--signal=KILL"};
// How long the processes of an attempt may take to be gone after they were killed, for its Slurm job to go on.
constexpr milliseconds kEndOfStep{2000};
constexpr milliseconds kLookAtEnd{10};

// What Slurm's commands may see of this process's environment.
std::vector<std::string> environment_of_commands(const std::filesystem::path& configuration) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_slurms = name.starts_with("SBATCH_") || (name == "SLURM_CONF" && configuration.empty());
    if (is_slurms || name == "PATH" || name == "HOME" || name == "USER" || name == "LOGNAME") {
      environment.emplace_back(text);
    }
  }
  if (!configuration.empty()) {
    environment.push_back("SLURM_CONF=" + configuration.string());
  }
  return environment;
}

std::string joined(const std::vector<std::string>& names, std::string_view between) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : std::string(between)) + (name.empty() ? "any" : name);
  }
  return text;
}

// In the state directory: nodes that Slurm has as lost, one a line.
constexpr std::string_view kLostNodes = "slurm-lost-nodes";

struct NodeState {
  bool is_lost = false;
  std::string why;
};

class SlurmEngine final : public Engine {
 public:
  explicit SlurmEngine(const EngineSettings& settings)
      : settings_(settings), environment_(environment_of_commands(settings.slurm_configuration)) {}

  std::string name() const override { return "slurm"; }

  Result<std::vector<Node>> nodes() override { return nodes_until(soon()); }
  Result<void> deploy(const Deployment& deployment) override;
  Result<std::vector<LearnerStatus>> learners(const std::string& job, const std::string& team) override;
  void wait(const std::string& job, const std::string& team, milliseconds time) override;
  milliseconds good_for(const std::string& job) const override;
  Result<void> remove(const std::string& job, const std::string& team, std::optional<int> attempt) override;
  Result<void> vacate(const std::string& job, const std::string& team, int attempt) override;

 private:
  using Directory = std::pair<std::filesystem::path, int>;  // a volume and an attempt there

  Deadline soon() const { return steady_clock::now() + settings_.patience; }
  Result<CommandOutput> run(std::vector<std::string> words, Deadline deadline) const;
  // The output of a command that only asks.
  Result<std::string> ask(std::vector<std::string> words, Deadline deadline) const;
  Result<std::vector<Node>> nodes_until(Deadline deadline);
  // Changes with each mark of a job's attempts, and when whoever asks for nodes has seen others as lost.
  std::size_t signs_of(const std::string& job) const;
  void note_lost_nodes(const std::string& nodes) const;
  bool is_ours(const SlurmJob& found, const std::string& job) const;
  // All that Slurm still knows of a job, newest first; remembers where its attempts lie.
  Result<std::vector<SlurmJob>> find(const std::string& job, Deadline deadline);
  Result<void> submit(const Deployment& deployment, const SlurmRequest& request, const SlurmWords& words,
                      Deadline deadline);
  // Goes on in a Slurm job whose last attempt was vacated, if one of this size waits for that.
  Result<bool> follow(const Deployment& deployment, SlurmRequest request, const std::vector<SlurmJob>& jobs);
  Result<std::set<std::string>> nodes_taken_from(const SlurmJob& job, const Placement& hosts, Deadline deadline) const;
  Result<std::map<std::string, NodeState>> states_of(const std::set<std::string>& nodes, Deadline deadline) const;
  // Ends the Slurm jobs for which `is_meant` holds; returns when none can run anything any more.
  template <typename IsMeant>
  Result<void> cancel(const std::string& job, const IsMeant& is_meant, Deadline deadline);

  EngineSettings settings_;
  std::vector<std::string> environment_;
  std::map<std::string, std::set<Directory>> directories_;  // by job
  std::map<std::string, std::size_t> seen_signs_;           // by job, when its learners were last asked for
  std::string partitions_;                                  // what scontrol says of them, good for a while
  Deadline partitions_until_{};
  std::map<std::string, bool> is_steady_;  // by job: all its learners ran, or waited, then
};

bool can_run(const SlurmJob& job) { return is_waiting_in_slurm(job.state) || is_running_in_slurm(job.state); }

std::string unanswered(const std::string& program, const Result<CommandOutput>& answer) {
  return fmt::format("Slurm cannot be asked ({}): {}; `scontrol ping` says whether its controller is up", program,
                     answer ? first_error(answer->errors) : answer.error().message);
}

Result<CommandOutput> SlurmEngine::run(std::vector<std::string> words, Deadline deadline) const {
  return run_command({std::move(words), environment_, deadline});
}

Result<std::string> SlurmEngine::ask(std::vector<std::string> words, Deadline deadline) const {
  const std::string program = words[0];
  const auto answer = run(std::move(words), deadline);
  if (!answer || answer->exit_code != 0) {
    return failed(unanswered(program, answer));
  }
  return answer->output;
}

Result<std::vector<Node>> SlurmEngine::nodes_until(Deadline deadline) {
  if (steady_clock::now() >= partitions_until_) {
    TESSER_ASSIGN_OR_RETURN(partitions_, ask({"scontrol", "--oneliner", "show", "partitions"}, deadline));
    partitions_until_ = steady_clock::now() + kSteady;
  }
  TESSER_ASSIGN_OR_RETURN(const std::string nodes, ask({"scontrol", "--oneliner", "show", "nodes"}, deadline));
  note_lost_nodes(nodes);
  std::string names;
  for (const SlurmPartition& each : partitions_from_scontrol(partitions_)) {
    names += (names.empty() ? "" : ", ") + each.name;
    if (settings_.partition.empty() ? !each.is_default : each.name != settings_.partition) {
      continue;
    }
    std::vector<Node> found = nodes_from_scontrol(nodes, each.name);
    for (Node& node : found) {
      if (each.state != "UP") {
        node.is_ready = false;
        node.not_ready = fmt::format("its partition {} is {}", each.name, each.state);
      }
    }
    return found;
  }
  return invalid_input(settings_.partition.empty()
                           ? fmt::format("Slurm has no default partition; name one of: {}", names)
                           : fmt::format("Slurm has no partition '{}'; it has: {}", settings_.partition, names));
}

// For those who ask for learners only: a node that is lost is a sign to ask at once.
void SlurmEngine::note_lost_nodes(const std::string& nodes) const {
  if (settings_.state_directory.empty()) {
    return;
  }
  std::string lost;
  for (const auto& [node, state] : node_states_from_scontrol(nodes)) {
    lost += is_lost(state) ? node + "\n" : "";
  }
  const std::filesystem::path file = settings_.state_directory / kLostNodes;
  if (read_file(file).value_or("") != lost) {
    (void)write_file_atomically(file, lost);
  }
}

// Anybody may name a Slurm job as ours are, with their comment and directory. Where root is the server, learners' own
// user alone has one that lies in their job's volume; squeue leaves out other users' where it is not.
bool SlurmEngine::is_ours(const SlurmJob& found, const std::string& job) const {
  const std::filesystem::path& volume = found.directory;
  struct stat status {};
  if (!settings_.volumes.empty() && volume != settings_.volumes / job) {
    return false;
  }
  return ::geteuid() != 0 || (::lstat(volume.c_str(), &status) == 0 && status.st_uid == 0 &&
                              found.user == static_cast<std::int64_t>(learner_user_of(Volume(volume)).user));
}

Result<std::vector<SlurmJob>> SlurmEngine::find(const std::string& job, Deadline deadline) {
  const std::string mark = new_slurm_ticket();
  std::vector<std::string> words = {
      "squeue", "--noheader", "--all", "--states=all", "--name=" + slurm_job_name(job), squeue_format(mark)};
  const uid_t us = ::geteuid();
  if (us != 0) {
    words.push_back(fmt::format("--user={}", us));
  }
  TESSER_ASSIGN_OR_RETURN(const std::string text, ask(std::move(words), deadline));
  std::vector<SlurmJob> jobs = slurm_jobs_from_squeue(text, mark);
  std::erase_if(jobs, [&](const SlurmJob& each) { return !is_ours(each, job); });
  std::sort(jobs.begin(), jobs.end(),
            [](const SlurmJob& left, const SlurmJob& right) { return std::stoll(left.id) > std::stoll(right.id); });
  for (SlurmJob& each : jobs) {
    directories_[job].insert({each.directory, each.label.attempt});
    while (const auto next = SlurmAttempt(each.directory, each.label.attempt).next()) {
      if (*next <= each.label.attempt) {
        break;
      }
      each.label.attempt = *next;
      ++each.steps;
      directories_[job].insert({each.directory, *next});
    }
  }
  return jobs;
}

Result<void> SlurmEngine::deploy(const Deployment& deployment) {
  const Deadline deadline = soon();
  const std::string& job = deployment.job;
  const SlurmAttempt attempt(deployment.volume, deployment.attempt);
  SlurmRequest request;
  request.partition = settings_.partition;
  request.user = learner_user_of(Volume(deployment.volume));
  const auto unnamed = std::count(deployment.nodes.begin(), deployment.nodes.end(), "");
  if (!settings_.system_places && unnamed == 0) {
    request.chosen = deployment.nodes;
  } else if (!settings_.system_places && unnamed != static_cast<std::ptrdiff_t>(deployment.nodes.size())) {
    return invalid_input(
        fmt::format("job {}: name the nodes of all learners or of none: {}", job, joined(deployment.nodes, ", ")));
  }

  // Done already, perhaps by a process that has died since; or by one whose submission comes to light now.
  const std::string earlier = attempt.ticket();
  TESSER_ASSIGN_OR_RETURN(const std::vector<SlurmJob> before, find(job, deadline));
  const auto is_ours = [&](const SlurmJob& each, const std::string& ticket) {
    return each.label.attempt == deployment.attempt && each.label.ticket == ticket;
  };
  if (!earlier.empty() &&
      (attempt.has_begun(earlier) ||
       std::any_of(before.begin(), before.end(), [&](const auto& each) { return is_ours(each, earlier); }))) {
    return {};
  }

  request.ticket = new_slurm_ticket();
  if (deployment.each.memory_bytes == 0) {
    TESSER_ASSIGN_OR_RETURN(const std::vector<Node> nodes, nodes_until(deadline));
    for (const Node& node : nodes) {
      const std::int64_t processors = std::max<std::int64_t>(1, node.capacity.millicpus / 1000);
      const std::int64_t share = (node.capacity.memory_bytes >> 20) / processors;
      request.share_of_memory = request.share_of_memory == 0 ? share : std::min(request.share_of_memory, share);
    }
  }
  TESSER_ASSIGN_OR_RETURN(const SlurmWords words, slurm_words(deployment, request));
  TESSER_ASSIGN_OR_RETURN(const bool follows, follow(deployment, request, before));
  if (follows) {
    return {};
  }

  // From here on earlier submissions that are still under way start nothing; those that just had, end.
  directories_[job].insert({deployment.volume, deployment.attempt});
  TESSER_RETURN_IF_ERROR(attempt.write_ticket(request.ticket));
  TESSER_RETURN_IF_ERROR(cancel(
      job, [&](const SlurmJob& each) { return each.label.attempt == deployment.attempt; }, deadline));
  attempt.clear();
  TESSER_RETURN_IF_ERROR(attempt.write(request.chosen, words));

  const auto submitted = submit(deployment, request, words, deadline);
  if (!submitted) {
    attempt.remove_ticket();
  }
  return submitted;
}

Result<bool> SlurmEngine::follow(const Deployment& deployment, SlurmRequest request,
                                 const std::vector<SlurmJob>& jobs) {
  const SlurmAttempt attempt(deployment.volume, deployment.attempt);
  for (const SlurmJob& each : jobs) {
    const SlurmAttempt last(each.directory, each.label.attempt);
    if (each.state != "RUNNING" || each.directory != deployment.volume || each.label.attempt >= deployment.attempt ||
        !last.ticket().empty() || !last.is_over()) {
      continue;
    }
    request.ticket = each.label.ticket;
    TESSER_ASSIGN_OR_RETURN(const SlurmWords words, slurm_words(deployment, request));
    std::set<std::string> had;
    for (const auto& [rank, node] : last.marks().started) {
      had.insert(node);
    }
    if (words.size != last.size() || each.node_count < static_cast<int>(had.size())) {  // a node was taken from it
      continue;
    }
    directories_[deployment.job].insert({deployment.volume, deployment.attempt});
    TESSER_RETURN_IF_ERROR(attempt.write_ticket(request.ticket));
    attempt.clear();
    TESSER_RETURN_IF_ERROR(attempt.write(request.chosen, words));
    TESSER_ASSIGN_OR_RETURN(const bool waited, last.write_next(deployment.attempt));
    if (waited) {
      return true;
    }
    attempt.remove_ticket();
  }
  return false;
}

Result<void> SlurmEngine::submit(const Deployment& deployment, const SlurmRequest& request, const SlurmWords& words,
                                 Deadline deadline) {
  // Some time is left to look what has become of it.
  const auto answer = run(words.sbatch, deadline - settings_.patience / 4);
  if (answer && answer->exit_code == 0) {
    return {};
  }
  const std::string what = fmt::format("job {}, attempt {}: {} learners on {}", deployment.job, deployment.attempt,
                                       deployment.nodes.size(), joined(deployment.nodes, ", "));
  if (answer && is_refusal(answer->errors)) {
    return invalid_input(fmt::format("{}: Slurm refuses this: {}", what, first_error(answer->errors)));
  }
  if (!answer && answer.error().code == ErrorCode::kNotFound) {
    return failed(fmt::format("{}: {}", what, answer.error().message));
  }
  const std::string why = answer ? first_error(answer->errors) : answer.error().message;
  // Slurm may have taken it all the same, and its answer was lost.
  while (true) {
    const auto jobs = find(deployment.job, deadline);
    if (jobs && std::any_of(jobs->begin(), jobs->end(),
                            [&](const SlurmJob& each) { return each.label.ticket == request.ticket; })) {
      return {};
    }
    if (jobs || steady_clock::now() + kAskAgain > deadline) {
      return failed(fmt::format("{}: Slurm has not taken this: {}", what, why));
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

Result<std::map<std::string, NodeState>> SlurmEngine::states_of(const std::set<std::string>& nodes,
                                                                Deadline deadline) const {
  std::map<std::string, NodeState> states;
  if (nodes.empty()) {
    return states;
  }
  const auto answer =
      run({"scontrol", "--oneliner", "show", "nodes", joined({nodes.begin(), nodes.end()}, ",")}, deadline);
  // It prints what it knows also when it does not know one of them.
  const bool knows_one_not = answer && answer->errors.find("not found") != std::string::npos;
  if (!answer || (answer->exit_code != 0 && !knows_one_not)) {
    return failed(unanswered("scontrol", answer));
  }
  for (const std::string& node : nodes) {
    states[node] = {true, "Slurm knows it no more"};
  }
  for (const auto& [node, state] : node_states_from_scontrol(answer->output)) {
    states[node] = {is_lost(state), why_not_ready(state)};
  }
  return states;
}

// A node that fails is taken from the job, which goes on with the others (--no-kill). It may be back and idle before
// anybody has seen it down.
Result<std::set<std::string>> SlurmEngine::nodes_taken_from(const SlurmJob& job, const Placement& hosts,
                                                            Deadline deadline) const {
  std::set<std::string> taken(hosts.begin(), hosts.end());
  taken.erase("");
  if (job.state != "RUNNING" || job.node_count >= static_cast<int>(taken.size())) {
    return std::set<std::string>();
  }
  TESSER_ASSIGN_OR_RETURN(const std::string names, ask({"scontrol", "show", "hostnames", job.nodes}, deadline));
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find('\n', begin), names.size());
    taken.erase(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return taken;
}

Result<std::vector<LearnerStatus>> SlurmEngine::learners(const std::string& job, const std::string&) {
  const Deadline deadline = soon();
  seen_signs_[job] = signs_of(job);  // before Slurm is asked: what comes meanwhile is news
  is_steady_[job] = false;
  TESSER_ASSIGN_OR_RETURN(const std::vector<SlurmJob> jobs, find(job, deadline));

  // One Slurm job an attempt: the one whose ticket is good; while that is being removed, the one that still runs.
  std::map<int, const SlurmJob*> newest;
  for (const SlurmJob& each : jobs) {
    const bool is_good = SlurmAttempt(each.directory, each.label.attempt).ticket() == each.label.ticket;
    if (is_good) {
      newest[each.label.attempt] = &each;
    } else if (can_run(each)) {
      newest.try_emplace(each.label.attempt, &each);
    }
  }

  std::map<int, SlurmMarks> marks;
  std::map<int, bool> over;
  std::map<int, Placement> hosts;
  std::set<std::string> nodes;
  for (const auto& [number, found] : newest) {
    const SlurmAttempt attempt(found->directory, number);
    marks[number] = attempt.marks();
    if (is_running_in_slurm(found->state)) {
      marks[number].ended.merge(attempt.ended_badly());
      over[number] = attempt.is_over();
    }
    hosts[number] = attempt.hosts();
    hosts[number].resize(static_cast<std::size_t>(found->label.learners));
    for (const auto& [rank, node] : marks[number].started) {
      if (rank < found->label.learners && hosts[number][static_cast<std::size_t>(rank)].empty()) {
        hosts[number][static_cast<std::size_t>(rank)] = node;
      }
    }
    if (!is_waiting_in_slurm(found->state)) {
      nodes.insert(hosts[number].begin(), hosts[number].end());
    }
  }
  nodes.erase("");
  TESSER_ASSIGN_OR_RETURN(const auto states, states_of(nodes, deadline));
  std::map<int, std::set<std::string>> taken;  // nodes that an attempt had and its Slurm job has no more
  for (const auto& [number, found] : newest) {
    TESSER_ASSIGN_OR_RETURN(taken[number], nodes_taken_from(*found, hosts[number], deadline));
  }

  std::vector<LearnerStatus> learners;
  for (const auto& [number, found] : newest) {
    const std::string last_words =
        can_run(*found) && !over[number] ? "" : SlurmAttempt(found->directory, number).last_words();
    for (int rank = 0; rank < found->label.learners; ++rank) {
      LearnerStatus status{number, rank, LearnerState::kRunning, hosts[number][static_cast<std::size_t>(rank)], ""};
      const auto node = states.find(status.node);
      const bool has_started = marks[number].started.count(rank) > 0;
      if (marks[number].ended.count(rank) > 0) {
        status.state = LearnerState::kEnded;
        status.reason = can_run(*found) ? "" : end_in_words(found->state, found->reason);
      } else if (is_waiting_in_slurm(found->state)) {
        status.state = LearnerState::kWaiting;
        status.reason = waiting_in_words(found->reason);
      } else if (node != states.end() && node->second.is_lost) {
        status.state = LearnerState::kLost;
        status.reason = fmt::format("node {}: {}", status.node, node->second.why);
      } else if (taken[number].count(status.node) > 0) {
        status.state = LearnerState::kLost;
        status.reason = fmt::format("node {} failed, and Slurm has taken it from job {}", status.node, found->id);
      } else if (is_running_in_slurm(found->state) && over[number]) {
        status.state = LearnerState::kEnded;
        status.reason = last_words;
      } else if (is_running_in_slurm(found->state)) {
        status.state = has_started ? LearnerState::kRunning : LearnerState::kWaiting;
        status.reason = found->state == "RUNNING" && has_started ? ""
                        : has_started                            ? fmt::format("Slurm has it as {}", found->state)
                                                                 : "Slurm is starting it";
        if (node != states.end() && !node->second.why.empty()) {
          status.reason = fmt::format("node {}: {}", status.node, node->second.why);
        }
      } else {
        const bool is_failure_of_node = found->state == "NODE_FAIL" || found->state == "BOOT_FAIL";
        status.state = is_failure_of_node ? LearnerState::kLost : LearnerState::kEnded;
        status.reason = end_in_words(found->state, found->reason);
        status.reason += last_words.empty() ? "" : "; last words: " + last_words;
      }
      learners.push_back(std::move(status));
    }
  }
  is_steady_[job] = !learners.empty() && std::all_of(learners.begin(), learners.end(), [](const LearnerStatus& each) {
    return each.state == LearnerState::kWaiting || each.state == LearnerState::kRunning;
  });
  return learners;
}

std::size_t SlurmEngine::signs_of(const std::string& job) const {
  std::size_t signs = 0;
  if (const auto directories = directories_.find(job); directories != directories_.end()) {
    for (const auto& [volume, attempt] : directories->second) {
      signs += SlurmAttempt(volume, attempt).signs();
    }
  }
  struct stat status {};
  if (!settings_.state_directory.empty() && ::stat((settings_.state_directory / kLostNodes).c_str(), &status) == 0) {
    signs += static_cast<std::size_t>(status.st_ino + static_cast<std::uint64_t>(status.st_mtim.tv_nsec));
  }
  return signs;
}

milliseconds SlurmEngine::good_for(const std::string& job) const {
  const auto steady = is_steady_.find(job);
  return steady != is_steady_.end() && steady->second ? kSteady : kUnsteady;
}

void SlurmEngine::wait(const std::string& job, const std::string&, milliseconds time) {
  const Deadline until = steady_clock::now() + time;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) {
      return;
    }
    if (signs_of(job) != seen_signs_[job]) {
      return;
    }
    std::this_thread::sleep_for(std::min(left, kLookAtMarks));
  }
}

template <typename IsMeant>
Result<void> SlurmEngine::cancel(const std::string& job, const IsMeant& is_meant, Deadline deadline) {
  for (bool is_first = true;; is_first = false) {
    TESSER_ASSIGN_OR_RETURN(const std::vector<SlurmJob> jobs, find(job, deadline));
    std::vector<std::string> steps(kKill.begin(), kKill.end());
    std::vector<std::string> words = steps;
    std::string left;
    for (const SlurmJob& each : jobs) {
      if (can_run(each) && is_meant(each)) {
        left += fmt::format("{}{} ({})", left.empty() ? "" : ", ", each.id, each.state);
        words.push_back(each.id);
        if (is_running_in_slurm(each.state)) {
          steps.push_back(fmt::format("{}.{}", each.id, each.steps - 1));
        }
      }
    }
    if (left.empty()) {
      return {};
    }
    if (!is_first && steady_clock::now() + kAskAgain > deadline) {
      return failed(fmt::format("job {}: Slurm has not ended its jobs {} yet; a node may not answer", job, left));
    }
    // What has ended by itself in between is refused; the next look says what is left. To end a job alone, Slurm would
    // ask its processes first and wait for them (KillWait).
    if (steps.size() > kKill.size()) {
      TESSER_RETURN_IF_ERROR(run(std::move(steps), deadline));
    }
    TESSER_RETURN_IF_ERROR(run(std::move(words), deadline));
    std::this_thread::sleep_for(is_first ? kAskAgain / 4 : kAskAgain);
  }
}

Result<void> SlurmEngine::remove(const std::string& job, const std::string&, std::optional<int> attempt) {
  const Deadline deadline = soon();
  TESSER_RETURN_IF_ERROR(find(job, deadline));
  std::vector<SlurmAttempt> meant;
  for (const auto& [volume, number] : directories_[job]) {
    if (!attempt || number == *attempt) {
      meant.emplace_back(volume, number);
    }
  }
  // Before anything else: what comes late starts nothing.
  for (const SlurmAttempt& each : meant) {
    each.remove_ticket();
  }
  TESSER_RETURN_IF_ERROR(cancel(
      job, [&](const SlurmJob& each) { return !attempt || each.label.attempt == *attempt; }, deadline));
  for (const SlurmAttempt& each : meant) {
    each.clear();
  }
  if (!attempt) {
    directories_.erase(job);
    seen_signs_.erase(job);
    is_steady_.erase(job);
  }
  return {};
}

// The batch job waits for another attempt when all learners have ended.
Result<void> SlurmEngine::vacate(const std::string& job, const std::string& team, int attempt) {
  const Deadline deadline = soon();
  TESSER_ASSIGN_OR_RETURN(const std::vector<SlurmJob> jobs, find(job, deadline));
  for (const SlurmJob& each : jobs) {
    const SlurmAttempt last(each.directory, attempt);
    const std::string ticket = last.ticket();
    if (each.state != "RUNNING" || each.label.attempt != attempt || (!ticket.empty() && ticket != each.label.ticket)) {
      continue;
    }
    last.remove_ticket();
    if (!last.is_over()) {
      const std::string step = fmt::format("{}.{}", each.id, each.steps - 1);
      std::vector<std::string> words(kKill.begin(), kKill.end());
      words.push_back(step);
      TESSER_RETURN_IF_ERROR(run(std::move(words), deadline));
    }
    const Deadline until = std::min(deadline, steady_clock::now() + kEndOfStep);
    while (steady_clock::now() < until) {
      if (last.is_over()) {
        return {};
      }
      std::this_thread::sleep_for(kLookAtEnd);
    }
    break;
  }
  return remove(job, team, attempt);
}

}  // namespace

Result<std::unique_ptr<Engine>> make_slurm_engine(const EngineSettings& settings) {
  for (const char* program : {"sbatch", "squeue", "scancel", "scontrol"}) {
    if (!has_program(program)) {
      return invalid_input(
          fmt::format("the engine slurm runs Slurm's commands, and there is no {} on the PATH; install them (Debian: "
                      "slurm-client) on the machine of the server",
                      program));
    }
  }
  return std::make_unique<SlurmEngine>(settings);
}

}  // namespace tesser::platform
