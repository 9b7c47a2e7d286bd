#include "platform/learner/collector_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "platform/learner/child_process.h"
#include "platform/learner/process_tree.h"

namespace tesser::platform {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRestart{50};
constexpr milliseconds kShortestPause{2};
constexpr milliseconds kLongestPause{50};
constexpr milliseconds kAfterError{200};
constexpr milliseconds kOrphanPatience{10'000};
constexpr milliseconds kKillTakes{5000};

bool is_readable(int file, milliseconds wait) {
  struct pollfd waiting {
    file, POLLIN, 0
  };
  return ::poll(&waiting, 1, static_cast<int>(wait.count())) > 0;
}

// Unlike fmt::print, without an exception where standard error takes nothing.
void say(const Error& error) { std::fprintf(stderr, "tesser learner: collector: %s\n", error.message.c_str()); }

}  // namespace

CollectorProcess::CollectorProcess(CollectorOptions options, std::string tag)
    : options_(std::move(options)), tag_(std::move(tag)) {}

CollectorProcess::~CollectorProcess() {
  if (finish_ >= 0) {
    ::close(finish_);
  }
}

Result<void> CollectorProcess::start() {
  if (finish_ < 0 && (finish_ = ::eventfd(0, EFD_CLOEXEC)) < 0) {
    return failed(fmt::format("cannot start the collector: {}", std::generic_category().message(errno)));
  }
  const pid_t learner = ::getpid();
  TESSER_ASSIGN_OR_RETURN(process_, fork_child([this, learner] { return collect(learner); }));
  is_started_ = true;
  return {};
}

bool CollectorProcess::ended(pid_t process, int status) {
  if (process != process_ || process == 0) {
    return false;
  }
  process_ = 0;
  is_finished_ = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  restart_at_ = Clock::now() + kRestart;
  return true;
}

bool CollectorProcess::restart_when_due() {
  return is_started_ && process_ == 0 && !is_finished_ && Clock::now() >= restart_at_ && start().has_value();
}

Result<void> CollectorProcess::finish(milliseconds patience) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(finish_, &one, sizeof one);
  const auto deadline = Clock::now() + patience;
  while (!is_finished_) {
    int status = 0;
    for (pid_t process; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      ended(process, status);
    }
    restart_when_due();
    if (is_finished_) {
      break;
    }
    if (Clock::now() > deadline) {
      if (process_ != 0) {
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
        process_ = 0;
      }
      is_finished_ = true;  // for restarts
      return failed("the end of its log could not be written: is the disk full?");
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  return {};
}

// The child. Its exit code: 0, the log is complete.
int CollectorProcess::collect(pid_t learner) const {
  // What the learner process has open is not ours: the port that it keeps for the command, for one.
  ::close_range(STDERR_FILENO + 1, static_cast<unsigned>(finish_) - 1, 0);
  ::close_range(static_cast<unsigned>(finish_) + 1, ~0U, 0);
  // Whoever ends the learner's processes softly gets its last lines too.
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    ::signal(number, SIG_IGN);
  }
  std::optional<Collector> collector;
  std::optional<Clock::time_point> orphaned;
  milliseconds pause = kShortestPause;
  while (true) {
    // Asked before reading: what is there then is all there will be.
    bool at_end = is_readable(finish_, milliseconds(0));
    if (::getppid() != learner) {
      if (!orphaned) {
        orphaned = Clock::now();
        ProcessTree(tag_, {}).end_all(kKillTakes, [] {});
      }
      at_end = true;
    }
    if (orphaned && Clock::now() - *orphaned > kOrphanPatience) {
      return 1;
    }
    if (!collector) {
      Result<Collector> opened = Collector::open(options_);
      if (!opened) {
        if (opened.error().code != ErrorCode::kNotFound) {
          say(opened.error());
        }
        std::this_thread::sleep_for(kAfterError / 4);
        continue;
      }
      collector.emplace(std::move(*opened));
    }
    Result<bool> took = collector->collect(at_end);
    if (took && at_end) {
      if (const Result<void> finished = collector->finish(); finished) {
        return 0;
      } else {
        took = tl::unexpected<Error>(finished.error());
      }
    }
    if (!took) {
      say(took.error());
      std::this_thread::sleep_for(kAfterError);
      continue;
    }
    pause = *took ? kShortestPause : std::min(pause * 2, kLongestPause);
    is_readable(finish_, pause);
  }
}

}  // namespace tesser::platform
