#include "platform/engine/slurm_attempt.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/engine/slurm_text.h"
#include "platform/job/volume.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::uint64_t kLongestName = 1024;
constexpr off_t kMostWords = off_t{1} << 20;  // of batch and srun that are looked at

// What runs first. Of a job only the words of srun stand in a script, quoted.
constexpr std::string_view kBatch = R"sh(#!/bin/sh
# Starts the learners of one attempt of a tesser job, and then of those that follow on the same nodes, each of which says
# so within seconds. Arguments: the directory of the first, the ticket.
directory=$1 ticket=$2
# A change of the directory has this node ask a shared file system what others have put there.
look() { mkdir "$directory/look" 2>/dev/null; rmdir "$directory/look" 2>/dev/null; }
has_no_step() {
  steps=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i) || return
  case $steps in *.[0-9]*) return 1 ;; esac
}
while :; do
  exec >>"$directory/batch.log" 2>&1
  mkdir "$directory/begun-$ticket" || exit 0
  if [ "$(cat "$directory/ticket")" != "$ticket" ]; then
    echo "The attempt was removed or submitted anew; nothing is started." >&2
    exit 0
  fi
  unset SLURM_HOSTFILE
  if [ -e "$directory/hosts" ]; then
    SLURM_HOSTFILE=$directory/hosts
    export SLURM_HOSTFILE
  fi
  . "$directory/words"
  srun "$@"
  code=$?
  # One that was killed leaves its step behind, which Slurm ends with this script.
  tries=0
  until has_no_step; do
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || exit "$code"
    sleep 0.05
  done
  : >"$directory/over"
  tries=0
  until [ -e "$directory/next" ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 60 ] && mkdir "$directory/next" 2>/dev/null; then
      exit "$code"
    fi
    sleep 0.05
    look
  done
  [ -f "$directory/next" ] || exit "$code"
  directory=${directory%/*/*}/$(cat "$directory/next")/${directory##*/}
done
)sh";

// Starts the learner of its rank and marks its end. Slurm's --task-epilog would do that too, and in some versions holds
// the end of a node's learners up by a second each.
constexpr std::string_view kStart =
    R"(d=$1; shift; printf '%s\n' "$SLURMD_NODENAME" >"$d/started-$SLURM_PROCID" || exit 75; )"
    R"(TESSER_RANK=$SLURM_PROCID; export TESSER_RANK; unset SLURM_HOSTFILE; trap : TERM; "$@"; c=$?; )"
    R"(: >"$d/ended-$TESSER_RANK" || exit 75; exit "$c")";

std::optional<int> rank_after(const std::string& name, std::string_view prefix) {
  int rank = 0;
  const char* end = name.data() + name.size();
  if (!name.starts_with(prefix)) {
    return std::nullopt;
  }
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, rank);
  return error == std::errc() && stop == end && rank >= 0 ? std::optional(rank) : std::nullopt;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  return names;
}

bool is_name_of_node(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char each) {
    return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ||
           each == '-' || each == '_' || each == '.';
  });
}

// In the names of output files Slurm replaces what follows %.
std::string as_pattern(const fs::path& path) {
  std::string pattern;
  for (const char each : path.string()) {
    pattern += each == '%' ? "%%" : std::string(1, each);
  }
  return pattern;
}

// What stands at the end of a file, whatever learners have made of it; empty when it is no file.
std::string end_of(const fs::path& path) {
  std::string text;
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status {};
  if (file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    const auto size = std::min<off_t>(status.st_size, kMostWords);
    text.resize(static_cast<std::size_t>(size));
    const ssize_t got = ::pread(file, text.data(), text.size(), status.st_size - size);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  if (file >= 0) {
    ::close(file);
  }
  return text;
}

// For a shell, as one word.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char each : word) {
    text += each == '\'' ? "'\\''" : std::string(1, each);
  }
  return text + "'";
}

template <typename Names>
std::string joined(const Names& names, std::string_view between) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : std::string(between)) + name;
  }
  return text;
}

// "h200:2,l4:1"; accelerators of the type "gpu" are those to which Slurm gives no type.
Result<std::string> gpus_per_task(const Resources& each) {
  std::string text;
  for (const auto& [type, count] : each.accelerators) {
    if (!is_name_of_node(type)) {
      return invalid_input(fmt::format("'{}' is no type of accelerators that Slurm could have", type));
    }
    if (count > 0) {
      text += (text.empty() ? "" : ",") + (type == "gpu" ? std::to_string(count) : fmt::format("{}:{}", type, count));
    }
  }
  return text;
}

}  // namespace

SlurmAttempt::SlurmAttempt(const fs::path& volume, int attempt)
    : directory_(Volume(volume).attempt(attempt) / "slurm"), user_(learner_user_of(Volume(volume))) {}

std::string SlurmAttempt::ticket() const {
  const ActingAs learner(user_);
  const auto text = read_file(directory_ / "ticket", 64);
  return text ? text->substr(0, text->find('\n')) : "";
}

bool SlurmAttempt::has_begun(const std::string& ticket) const {
  const ActingAs learner(user_);
  std::error_code ignored;
  return fs::exists(directory_ / ("begun-" + ticket), ignored);
}

Result<void> SlurmAttempt::write_ticket(const std::string& ticket) const {
  const ActingAs learner(user_);
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) {
    return failed(fmt::format("{}: cannot be made: {}", directory_.string(), error.message()));
  }
  return write_file_atomically(directory_ / "ticket", ticket + "\n");
}

void SlurmAttempt::remove_ticket() const {
  const ActingAs learner(user_);
  std::error_code ignored;
  fs::remove(directory_ / "ticket", ignored);
}

Result<void> SlurmAttempt::write(const Placement& chosen, const SlurmWords& words) const {
  const ActingAs learner(user_);
  std::string set = "set --";
  for (const std::string& word : words.srun) {
    set += " " + quoted(word);
  }
  TESSER_RETURN_IF_ERROR(write_file_atomically(directory_ / "batch", kBatch));
  TESSER_RETURN_IF_ERROR(write_file_atomically(directory_ / "words", set + "\n"));
  TESSER_RETURN_IF_ERROR(write_file_atomically(directory_ / "size", words.size));
  if (chosen.empty()) {
    return {};
  }
  std::string hosts;
  for (const std::string& node : chosen) {
    hosts += node + "\n";
  }
  return write_file_atomically(directory_ / "hosts", hosts);
}

void SlurmAttempt::clear() const {
  const ActingAs learner(user_);
  for (const std::string& name : names_in(directory_)) {
    const bool is_mark = name.starts_with("begun-") || rank_after(name, "started-") || rank_after(name, "ended-");
    if (is_mark || name == "hosts" || name == "size" || name == "over" || name == "next") {
      std::error_code ignored;
      fs::remove(directory_ / name, ignored);
    }
  }
}

Placement SlurmAttempt::hosts() const {
  const ActingAs learner(user_);
  Placement nodes;
  std::istringstream lines(read_file(directory_ / "hosts", kMostWords).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    nodes.push_back(is_name_of_node(line) ? line : "");
  }
  return nodes;
}

SlurmMarks SlurmAttempt::marks() const {
  const ActingAs learner(user_);
  SlurmMarks marks;
  for (const std::string& name : names_in(directory_)) {
    if (const auto rank = rank_after(name, "ended-")) {
      marks.ended.insert(*rank);
    } else if (const auto started = rank_after(name, "started-")) {
      const std::string text = read_file(directory_ / name, kLongestName).value_or("");
      const std::string node = text.substr(0, text.find('\n'));
      marks.started[*started] = is_name_of_node(node) ? node : "";
    }
  }
  return marks;
}

std::string SlurmAttempt::size() const {
  const ActingAs learner(user_);
  return read_file(directory_ / "size", kMostWords).value_or("");
}

bool SlurmAttempt::is_over() const {
  const ActingAs learner(user_);
  const std::vector<std::string> names = names_in(directory_);
  return std::find(names.begin(), names.end(), "over") != names.end();
}

std::optional<int> SlurmAttempt::next() const {
  const ActingAs learner(user_);
  const auto text = read_file(directory_ / "next", 64);
  return text ? rank_after("-" + *text, "-") : std::nullopt;
}

Result<bool> SlurmAttempt::write_next(int attempt) const {
  const ActingAs learner(user_);
  // A link fails where the name is taken, also by batch, which then ends.
  const fs::path written = directory_ / fmt::format("next-{}", new_slurm_ticket());
  TESSER_RETURN_IF_ERROR(write_file_atomically(written, std::to_string(attempt)));
  std::error_code error;
  fs::create_hard_link(written, directory_ / "next", error);
  std::error_code ignored;
  fs::remove(written, ignored);
  return !error;
}

std::size_t SlurmAttempt::signs() const {
  const ActingAs learner(user_);
  std::size_t signs = names_in(directory_).size();
  // Opening it has a network's file system ask for its size.
  const int file = ::open((directory_ / "batch.log").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat words {};
  if (file >= 0) {
    signs += ::fstat(file, &words) == 0 ? static_cast<std::size_t>(words.st_size) : 0;
    ::close(file);
  }
  return signs;
}

std::set<int> SlurmAttempt::ended_badly() const {
  const ActingAs learner(user_);
  return tasks_that_ended_badly(end_of(directory_ / "batch.log"));
}

std::string SlurmAttempt::last_words() const {
  const ActingAs learner(user_);
  std::istringstream lines(end_of(directory_ / "batch.log"));
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    last = line.empty() ? last : line;
  }
  return last;
}

std::string new_slurm_ticket() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

Result<SlurmWords> slurm_words(const Deployment& deployment, const SlurmRequest& request) {
  const Volume volume(deployment.volume);
  const SlurmAttempt attempt(deployment.volume, deployment.attempt);
  const std::size_t learners = deployment.nodes.size();
  if (deployment.command.empty() || learners == 0) {
    return invalid_input(fmt::format("job {}: a deployment needs a command and one learner at least", deployment.job));
  }
  for (const auto& [name, value] : deployment.environment) {
    if (name.empty() || name.find('=') != std::string::npos) {
      return invalid_input(fmt::format("job {}: '{}' is no name of an environment variable", deployment.job, name));
    }
  }
  TESSER_ASSIGN_OR_RETURN(const std::string accelerators, gpus_per_task(deployment.each));
  const std::int64_t processors = taken_of_node("slurm", deployment.each).millicpus / 1000;
  const std::int64_t memory = (deployment.each.memory_bytes + kMebibyte - 1) / kMebibyte;

  std::vector<std::string> tasks = {fmt::format("--ntasks={}", learners),
                                    fmt::format("--cpus-per-task={}", processors)};
  if (!accelerators.empty()) {
    tasks.push_back("--gpus-per-task=" + accelerators);
  }
  std::vector<std::string> places;
  if (!request.chosen.empty()) {
    for (const std::string& node : request.chosen) {
      if (!is_name_of_node(node)) {
        return invalid_input(fmt::format("job {}: '{}' is no name of a node", deployment.job, node));
      }
    }
    // The node of each task. Newer versions of Slurm take no --nodes beside it, and count how often a node is named;
    // srun has the same from SLURM_HOSTFILE.
    places = {"--nodelist=" + joined(request.chosen, ",")};
    tasks.emplace_back("--distribution=arbitrary");
  }

  const std::string memory_per_processor = fmt::format(
      "--mem-per-cpu={}M",
      std::max<std::int64_t>(1, memory > 0 ? (memory + processors - 1) / processors : request.share_of_memory));
  SlurmWords words;
  words.sbatch = {
      "sbatch",
      "--parsable",
      "--job-name=" + slurm_job_name(deployment.job),
      "--comment=" + to_comment({deployment.attempt, static_cast<int>(learners), request.ticket}),
      "--chdir=" + deployment.volume.string(),
      "--output=" + as_pattern(attempt.directory() / "batch.log"),
      "--open-mode=append",
      "--export=ALL",  // of the few variables that sbatch itself is given
      "--no-requeue",
      "--no-kill",  // learners on other nodes end as their guardian says, with a checkpoint
      memory_per_processor,
  };
  if (!request.partition.empty()) {
    words.sbatch.push_back("--partition=" + request.partition);
  }
  if (::geteuid() == 0 && request.user.user != 0) {
    words.sbatch.push_back(fmt::format("--uid={}", request.user.user));
    words.sbatch.push_back(fmt::format("--gid={}", request.user.group));
  }
  words.sbatch.insert(words.sbatch.end(), places.begin(), places.end());
  words.sbatch.insert(words.sbatch.end(), tasks.begin(), tasks.end());
  words.size = fmt::format("{}\n{}\n{}\n", request.partition, memory_per_processor, joined(tasks, "\n"));
  for (const std::string& node : request.chosen) {
    words.size += node + "\n";
  }
  // The script that sbatch makes of this holds no more. One on the volume it would read with root's rights, where root
  // submits, and so whatever learners had put in its place.
  const std::string directory = attempt.directory().string();
  words.sbatch.push_back(
      fmt::format("--wrap=exec /bin/sh {} {} {}", quoted(directory + "/batch"), quoted(directory), request.ticket));

  words.srun = std::move(tasks);
  words.srun.insert(words.srun.end(),
                    {
                        "--no-kill",
                        "--kill-on-bad-exit=0",
                        "--wait=0",
                        "--mpi=none",
                        "--input=none",
                        "--output=" + as_pattern(volume.attempt(deployment.attempt)) + "/learner-%t.log",
                        "--open-mode=append",
                        "/usr/bin/env",
                        "--",
                    });
  for (const auto& [name, value] : deployment.environment) {
    words.srun.push_back(fmt::format("{}={}", name, value));
  }
  words.srun.insert(words.srun.end(),
                    {"/bin/sh", "-c", std::string(kStart), "tesser-learner", attempt.directory().string()});
  words.srun.insert(words.srun.end(), deployment.command.begin(), deployment.command.end());
  return words;
}

}  // namespace tesser::platform
