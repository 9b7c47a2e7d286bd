#include "platform/learner/learner.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "control/control_http.h"
#include "platform/job/learner_user.h"
#include "platform/job/manifest.h"
#include "platform/job/volume.h"
#include "platform/learner/child_process.h"
#include "platform/learner/collector_process.h"
#include "platform/learner/learner_command.h"
#include "platform/learner/learner_host.h"
#include "platform/learner/log_reader.h"
#include "platform/learner/markers.h"
#include "platform/learner/process_tree.h"

namespace tesser::platform {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{20};            // between two looks at the volume
constexpr milliseconds kBesideEnds{2000};    // for what runs beside a stage, after it
constexpr milliseconds kLeftoversEnd{1000};  // from SIGTERM to SIGKILL for what a command leaves behind
constexpr milliseconds kKillTakes{10'000};
constexpr milliseconds kAfterKill{200};
constexpr milliseconds kLogTakes{30'000};  // for the rest of the log, when its disk does not take it
constexpr milliseconds kMarkerTakes{60'000};
constexpr int kWrongInput = 2;  // exit code of tesser's commands

class Learner {
 public:
  explicit Learner(const LearnerOptions& options)
      : options_(options),
        volume_(options.volume),
        tree_(learner_tag(volume_, options.attempt, options.rank), {}),
        collector_({volume_, options.rank, options.attempt, 0, {}},
                   learner_tag(volume_, options.attempt, options.rank)) {
    exit_.rank = options.rank;
  }

  Result<void> run();

 private:
  Result<void> prepare();
  Result<bool> take_up();
  bool wait_for_go();
  Result<LearnerCommand> make_command();
  void run_stages(const LearnerCommand& command);
  bool run_stage(const CommandStage& stage, const LearnerCommand& command);
  void watch(pid_t main, pid_t group);
  void end_leftovers(const CommandStage& stage, pid_t group);
  void explain(const CommandStage& stage, int status, std::optional<std::int64_t> killed_before);
  void take_signals(milliseconds wait);
  void reap();
  bool is_to_stop();
  milliseconds grace() const;
  void fail(const std::string& error_class, const std::string& reason);
  void fail(const Error& error) {
    fail(error.code == ErrorCode::kFailed ? "S" : "U", error.message);
    exit_.is_final = error.code != ErrorCode::kFailed;
  }
  Result<void> write_exit();

  const LearnerOptions options_;
  const Volume volume_;
  Manifest manifest_;
  ProcessTree tree_;
  CollectorProcess collector_;
  std::optional<ReservedPort> port_;
  int signals_ = -1;
  bool was_told_ = false;  // by a signal
  Go go_;
  LearnerExit exit_;
  pid_t main_ = 0;
  std::optional<int> main_status_;
};

Result<void> Learner::run() {
  if (::access(volume_.learner_exit(options_.attempt, options_.rank).c_str(), F_OK) == 0) {
    return {};
  }
  TESSER_RETURN_IF_ERROR(prepare());
  TESSER_ASSIGN_OR_RETURN(const bool is_first, take_up());
  if (!is_first) {
    fail("S", "an earlier process of this learner had started the command and died");
  } else if (wait_for_go()) {
    const Result<LearnerCommand> command = make_command();
    if (command) {
      run_stages(*command);
    } else {
      fail(command.error());
    }
  }
  return write_exit();
}

Result<void> Learner::prepare() {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) {
    sigaddset(&handled, number);
  }
  // Where learners have a user of their own they gain no other's rights, and others see none of their files, whatever
  // started this process.
  struct stat root {};
  if (::stat(volume_.root().c_str(), &root) == 0 && learner_user_of(volume_).user != root.st_uid) {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
      return failed(fmt::format("cannot give up gaining rights: {}", std::generic_category().message(errno)));
    }
    ::umask(kUmaskOfLearners);
  }
  // Ignored signals would not be reported, and a first process of a container ignores what it does not handle.
  ::signal(SIGPIPE, SIG_IGN);
  if (::sigprocmask(SIG_BLOCK, &handled, nullptr) != 0 ||
      (signals_ = ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)) < 0 ||
      ::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return failed(fmt::format("cannot watch over processes: {}", std::generic_category().message(errno)));
  }
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(volume_.job()));
  TESSER_ASSIGN_OR_RETURN(manifest_, manifest_from_json(text));
  return {};
}

// Says that this process is up. False when one before it had the command started.
Result<bool> Learner::take_up() {
  const std::filesystem::path path = volume_.learner_up(options_.attempt, options_.rank);
  const Result<LearnerUp> before = read_learner_up(path);
  LearnerUp up = this_host();
  if (before && before->host == up.host && before->pid != up.pid && start_ticks(static_cast<pid_t>(before->pid)) &&
      *start_ticks(static_cast<pid_t>(before->pid)) == before->started) {
    return failed(fmt::format("process {} of this learner lives; nothing is started", before->pid));
  }
  const bool had_begun = before && ::access(volume_.go(options_.attempt).c_str(), F_OK) == 0;
  TESSER_ASSIGN_OR_RETURN(port_, ReservedPort::take());
  up.rank = options_.rank;
  up.port = port_->number();
  up.time = microseconds_since_1970();
  if (manifest_.program && options_.rank == 0 && !had_begun) {
    TESSER_RETURN_IF_ERROR(write_secret(run_token_path(volume_, options_.attempt), control::make_run_token()));
  }
  if (!had_begun) {
    TESSER_RETURN_IF_ERROR(write_file_atomically(path, to_json(up)));
  }
  return !had_begun;
}

bool Learner::wait_for_go() {
  while (true) {
    if (is_to_stop()) {
      fail("S", was_told_ ? "the learner was told to end (SIGTERM) before its command began"
                          : "told to end before the command began");
      return false;
    }
    const Result<Go> go = read_go(volume_.go(options_.attempt));
    if (go) {
      go_ = *go;
      return true;
    }
    if (go.error().code != ErrorCode::kNotFound) {
      fail("S", go.error().message);
      return false;
    }
    take_signals(kLook);
    reap();
  }
}

Result<LearnerCommand> Learner::make_command() {
  LearnerPlace place{volume_, options_.attempt, options_.rank, go_, options_.tesser, {}};
  if (manifest_.program) {
    TESSER_ASSIGN_OR_RETURN(place.run_token, read_file(run_token_path(volume_, options_.attempt), 4096));
  }
  Secrets secrets;
  Result<std::string> text = read_file(volume_.learner_secrets());
  if (!text && text.error().code == ErrorCode::kNotFound) {  // a volume of before they lay apart
    text = read_file(volume_.secrets());
  }
  if (text) {
    TESSER_ASSIGN_OR_RETURN(secrets, secrets_from_json(*text));
  } else if (text.error().code != ErrorCode::kNotFound) {
    return tl::unexpected<Error>(text.error());
  }
  for (const std::filesystem::path& directory :
       {volume_.results(), volume_.checkpoints(), volume_.state(), volume_.data(), volume_.log_files(options_.rank)}) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) {
      return failed(fmt::format("{}: cannot make this directory: {}", directory.string(), error.message()));
    }
  }
  return learner_command(manifest_, secrets, place);
}

void Learner::run_stages(const LearnerCommand& command) {
  // Also before a stage that cannot be started: its log is there and empty.
  collector_.set_options(collector_options(volume_, manifest_, options_.rank, options_.attempt));
  const Result<void> collecting = collector_.start();
  if (!collecting) {
    return fail(collecting.error());
  }
  tree_.keep(collector_.process());
  for (const CommandStage& stage : command.stages) {
    if (!run_stage(stage, command)) {
      break;
    }
  }
  const Result<void> collected = collector_.finish(kLogTakes);
  if (!collected) {
    exit_.log_complete = false;
    exit_.reason += (exit_.reason.empty() ? "" : "; ") + collected.error().message;
  }
}

// True when the next stage may follow.
bool Learner::run_stage(const CommandStage& stage, const LearnerCommand& command) {
  if (stage.needs_port) {
    port_.reset();
  }
  const auto killed_before = killed_for_memory();
  ChildStart start{stage.words, command.environment, command.directory,
                   volume_.raw_log(options_.rank, options_.attempt)};
  const Result<pid_t> child = start_child(start);
  if (!child) {
    fail(child.error());
    return false;
  }
  if (!exit_.started) {
    exit_.started = microseconds_since_1970();
  }
  main_ = *child;
  main_status_.reset();
  start.group = main_;
  for (const std::vector<std::string>& words : stage.beside) {
    start.words = words;
    if (const Result<pid_t> beside = start_child(start); !beside) {
      tree_.end_all(kKillTakes, [this] { reap(); });
      fail(beside.error());
      return false;
    }
  }
  watch(main_, main_);
  end_leftovers(stage, main_);
  explain(stage, main_status_.value_or(0), killed_before);
  return exit_.error_class.empty() && !exit_.stopped;
}

// Until the main process has ended, by itself or because it was told to.
void Learner::watch(pid_t main, pid_t group) {
  std::optional<Clock::time_point> told;
  while (!main_status_) {
    take_signals(kLook);
    reap();
    if (main_status_) {
      return;
    }
    if (!told && is_to_stop()) {
      exit_.stopped = true;
      told = Clock::now();
      ::kill(-group, SIGTERM);
      ::kill(-group, SIGCONT);  // of a paused one, which would not see it
    }
    // Who waits for its end may have less time meanwhile than there was.
    if (told && Clock::now() >= *told + grace()) {
      if (!tree_.end_all(kKillTakes, [this] { reap(); }) || !main_status_) {
        ::kill(main, SIGKILL);
        take_signals(kAfterKill);
      }
    }
  }
}

void Learner::end_leftovers(const CommandStage& stage, pid_t group) {
  const auto wait_for_end = [&](milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    while (!tree_.processes().empty() && Clock::now() < deadline) {
      take_signals(milliseconds(5));
      reap();
    }
  };
  reap();
  if (!stage.beside.empty()) {
    wait_for_end(kBesideEnds);
  }
  if (!tree_.processes().empty()) {
    ::kill(-group, SIGTERM);
    wait_for_end(exit_.stopped ? std::min(kLeftoversEnd, grace()) : kLeftoversEnd);
  }
  if (!tree_.end_all(kKillTakes, [this] { reap(); })) {
    fail("S",
         "a process of the command does not end, not even by SIGKILL: it waits in the system, for a disk or a "
         "device that does not answer");
  }
}

void Learner::explain(const CommandStage& stage, int status, std::optional<std::int64_t> killed_before) {
  exit_.code.reset();
  exit_.signal.reset();
  const auto killed_after = killed_for_memory();
  const bool lacked_memory = killed_before && killed_after && *killed_after > *killed_before;
  const std::string memory =
      lacked_memory ? "; the system has killed a process of it that needed more memory than the learner has: give it "
                      "more `memory` in the manifest, or smaller batches"
                    : "";
  if (WIFEXITED(status)) {
    exit_.code = WEXITSTATUS(status);
    if (*exit_.code != 0) {
      fail(exit_.stopped ? "S" : "U", fmt::format("{} ended with code {}{}{}", stage.what, *exit_.code,
                                                  exit_.stopped ? " after it was told to end" : "", memory));
      exit_.is_final = !exit_.stopped && stage.tells_wrong_input && *exit_.code == kWrongInput;
    } else if (exit_.stopped) {
      fail("S", fmt::format("{} was told to end", stage.what));
    }
    return;
  }
  exit_.signal = WTERMSIG(status);
  const std::string name = signal_name(*exit_.signal);
  if (exit_.stopped) {
    return fail("S", fmt::format("{} was told to end, and ended by {}", stage.what, name));
  }
  const bool from_outside =
      *exit_.signal == SIGKILL || *exit_.signal == SIGTERM || *exit_.signal == SIGINT || *exit_.signal == SIGHUP;
  fail(from_outside && !lacked_memory ? "S" : "U", fmt::format("{} was ended by {}{}", stage.what, name, memory));
}

void Learner::take_signals(milliseconds wait) {
  struct pollfd waiting {
    signals_, POLLIN, 0
  };
  ::poll(&waiting, 1, static_cast<int>(wait.count()));
  struct signalfd_siginfo signal {};
  while (::read(signals_, &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
    was_told_ = was_told_ || signal.ssi_signo != SIGCHLD;
  }
}

// Takes the exit codes of children, and of orphans that came to this process.
void Learner::reap() {
  int status = 0;
  for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (ended == main_) {
      main_status_ = status;
    } else if (collector_.ended(ended, status)) {
      tree_.forget(ended);
    }
  }
  if (collector_.restart_when_due()) {
    tree_.keep(collector_.process());
  }
}

bool Learner::is_to_stop() { return was_told_ || ::access(volume_.stop(options_.attempt).c_str(), F_OK) == 0; }

// Of a command that was told to end.
milliseconds Learner::grace() const {
  const Result<Stop> stop = read_stop(volume_.stop(options_.attempt));
  return stop && stop->grace ? std::min<milliseconds>(*stop->grace, manifest_.grace) : milliseconds(manifest_.grace);
}

void Learner::fail(const std::string& error_class, const std::string& reason) {
  exit_.error_class = error_class;
  exit_.reason = reason;
}

Result<void> Learner::write_exit() {
  exit_.time = microseconds_since_1970();
  exit_.stopped = exit_.stopped || (!exit_.started && is_to_stop());
  LogReader reader(volume_, options_.rank);
  if (const auto end = reader.tail(0)) {
    exit_.lines = end->place(options_.rank).sequence - 1;
  }
  const auto deadline = Clock::now() + kMarkerTakes;
  while (true) {
    const Result<bool> written =
        write_marker_once(volume_.learner_exit(options_.attempt, options_.rank), to_json(exit_));
    if (written) {
      return {};
    }
    if (Clock::now() > deadline) {
      return tl::unexpected<Error>(written.error());
    }
    std::this_thread::sleep_for(milliseconds(200));  // a full disk may get room
  }
}

}  // namespace

Result<void> run_learner(const LearnerOptions& options) { return Learner(options).run(); }

}  // namespace tesser::platform
