#include "platform/server/dispatcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "platform/engine/guardian_host.h"
#include "platform/job/times.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kBetweenLooks{250};
constexpr SchedulerSettings kSchedulerSettings = [] {
  SchedulerSettings settings;
  settings.depth = 200;
  return settings;
}();
// Reasons say times from now, so they are made anew; and whatever they cost, little of this thread's time goes there.
constexpr milliseconds kReasonsAge{1000};
constexpr int kBetweenReasons = 20;    // times what it took, after a change
constexpr int kBetweenRenewals = 100;  // else
constexpr milliseconds kShortestPause{2};
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{10'000};
constexpr int kMostFailures = 12;           // of guardians one after the other, which takes a minute
constexpr seconds kGoodLife{30};            // a guardian that lived so long has not failed at its start
constexpr seconds kTimeToEnd{60};           // of a guardian whose job needs none any more
constexpr milliseconds kLateness{1000};     // on top of the lease's time
constexpr seconds kTimeToStartAtHost{120};  // until a guardian at the engine's system has to be heard first

}  // namespace

Dispatcher::Dispatcher(DispatcherOptions options, Store& store, JobBells& bells, std::unique_ptr<Engine> engine)
    : options_(std::move(options)),
      store_(store),
      bells_(bells),
      has_host_(engine->guardian_host() != nullptr),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      jobs_(kSchedulerSettings.aging) {
  store_.watch([this](const JobChange& change) {
    {
      const std::lock_guard lock(mutex_);
      news_.push_back(change);
    }
    bells_.ring(change.id);
    wake();
  });
  engine_ = std::make_unique<EngineWorker>(std::move(engine), [this] {
    nodes_have_changed_ = true;
    wake();
  });
  thread_ = std::thread([this] { run(); });
}

Dispatcher::~Dispatcher() {
  stops_ = true;
  wake();
  thread_.join();
  engine_.reset();
  store_.watch({});
  ::close(wake_);
}

void Dispatcher::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof(one));
}

void Dispatcher::cluster_has_changed() {
  cluster_has_changed_ = true;
  wake();
}

void Dispatcher::hear(const std::string& job) {
  const std::lock_guard lock(mutex_);
  heard_[job] = Clock::now();
}

Dispatcher::Clock::time_point Dispatcher::heard(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  const auto found = heard_.find(job);
  return found == heard_.end() ? Clock::time_point{} : found->second;
}

std::vector<std::string> Dispatcher::queue(const std::function<bool(const std::string& team)>& of) const {
  std::vector<std::string> jobs;
  const std::lock_guard lock(mutex_);
  for (const QueuedJob& job : queue_) {
    if (of(job.team)) {
      jobs.push_back(job.id);
    }
  }
  return jobs;
}

std::optional<WaitingPlaceInQueue> Dispatcher::waiting(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(job);
  return found == waiting_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> Dispatcher::Watched::take_ended() {
  if (!process || !process->has_ended()) {
    return std::nullopt;
  }
  std::string how = process->outcome();
  process.reset();
  return how;
}

void Dispatcher::run() {
  if (!has_host_) {
    for (auto& [job, process] : GuardianProcess::find(options_.data / "jobs")) {
      Watched& watched = watched_[job];
      if (watched.process) {  // it has the journal and this one waits for it in vain
        continue;
      }
      options_.log(fmt::format("job {}: its guardian lives on as process {}", job, process.pid()));
      watched.process = std::move(process);
      watched.started = Clock::now();
    }
  }
  while (!stops_) {
    step();
    std::vector<pollfd> entries{{wake_, POLLIN, 0}};
    std::vector<std::string> jobs;
    for (const auto& [job, watched] : watched_) {
      if (watched.process) {
        entries.push_back({watched.process->descriptor(), POLLIN, 0});
        jobs.push_back(job);
      }
    }
    guardian_count_ = static_cast<std::int64_t>(jobs.size());
    const auto time = std::chrono::ceil<milliseconds>(time_to_sleep());
    ::poll(entries.data(), entries.size(), static_cast<int>(time.count()));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (entries[i + 1].revents != 0) {
        ended_.insert(jobs[i]);
      }
    }
    std::uint64_t rings = 0;
    [[maybe_unused]] const auto taken = ::read(wake_, &rings, sizeof(rings));
    if (!stops_ && rings > 1) {
      std::this_thread::sleep_for(kShortestPause);  // many changes at once are one look
    }
  }
}

Dispatcher::Clock::duration Dispatcher::time_to_sleep() const {
  auto until = next_look_at_all_;
  until = std::min(until, wants_explaining_ ? next_explanation_ : renew_explanation_);
  return std::clamp<Clock::duration>(until - Clock::now(), kShortestPause, kBetweenLooks);
}

void Dispatcher::log_store_error(const Error& error) {
  if (store_error_ != error.message) {
    store_error_ = error.message;
    options_.log(store_error_);
  }
}

bool Dispatcher::load() {
  auto live = store_.live_jobs();
  if (!live) {
    log_store_error(live.error());
    return false;
  }
  for (JobRecord& job : *live) {
    jobs_.hear({job.id, std::move(job)});
  }
  is_loaded_ = true;
  return true;
}

// Jobs about which something is another.
std::set<std::string> Dispatcher::take_news() {
  std::vector<std::pair<std::string, std::function<void()>>> done;
  std::vector<JobChange> news;
  {
    const std::lock_guard lock(mutex_);
    done.swap(done_);
    news.swap(news_);
  }
  std::set<std::string> jobs = std::exchange(ended_, {});
  for (const JobChange& change : news) {
    wants_placing_ = jobs_.hear(change) || wants_placing_;
    jobs.insert(change.id);
  }
  for (const auto& [job, then] : done) {
    then();
    jobs.insert(job);
  }
  return jobs;
}

void Dispatcher::step() {
  if (!is_loaded_ && !load()) {
    next_look_at_all_ = Clock::now() + kBetweenLooks;
    return;
  }
  std::set<std::string> jobs = take_news();
  if (const auto now = Clock::now(); now >= next_look_at_all_) {
    next_look_at_all_ = now + kBetweenLooks;
    for (const auto& [id, job] : jobs_.active()) {
      jobs.insert(id);
    }
    for (const auto& [id, watched] : watched_) {
      jobs.insert(id);
    }
  }
  for (const std::string& id : jobs) {
    see_to(id);
  }
  place();
}

void Dispatcher::see_to(const std::string& id) {
  const JobRecord* job = jobs_.find(id);
  if (job != nullptr) {
    see_to_job(*job);
  }
  const auto watched = watched_.find(id);
  if (watched != watched_.end() && may_forget(id, watched->second, job)) {
    watched_.erase(watched);
    wants_placing_ = true;  // it may wait for places, and could not have any before
    const std::lock_guard lock(mutex_);
    heard_.erase(id);
  }
}

void Dispatcher::see_to_job(const JobRecord& job) {
  if (waits_for_places(job.state) && job.wanted == Wanted::kRun) {
    return;
  }
  Watched& watched = watched_[job.id];
  if (watched.engine_is_at_work) {
    return;
  }
  if (holds_places(job.state)) {
    has_host_ ? see_to_hosted_guardian(job, watched) : see_to_guardian(job, watched);
  } else if (job.wanted == Wanted::kDelete) {
    [[maybe_unused]] const auto how = watched.take_ended();
    if (!watched.process) {
      remove(job, watched);
    }
  } else if (job.wanted == Wanted::kHalt && waits_for_places(job.state)) {
    change(job, JobState::kHalted, "", "halted by its owner");
  }
}

void Dispatcher::see_to_guardian(const JobRecord& job, Watched& watched) {
  const auto now = Clock::now();
  if (const auto how = watched.take_ended()) {
    note_failure(job, watched, watched.is_killed ? "did not answer and was killed" : *how);
  }
  if (watched.process) {
    if (!watched.is_killed && now - std::max(watched.started, heard(job.id)) > options_.lease_time + kLateness) {
      options_.log(
          fmt::format("job {}: its guardian, process {}, does not renew its lease", job.id, watched.process->pid()));
      watched.process->kill();
      watched.is_killed = true;
    }
    return;
  }
  if (watched.failures > kMostFailures) {
    give_up(job, watched);
  } else if (Clock::now() >= watched.next_start) {  // not `now`, which is before a failure noted above
    start_guardian(job, watched);
  }
}

void Dispatcher::note_failure(const JobRecord& job, Watched& watched, const std::string& how) {
  const auto now = Clock::now();
  watched.failures = now - watched.started > kGoodLife ? 1 : watched.failures + 1;
  const auto pause = watched.failures == 1
                         ? milliseconds(0)
                         : std::min(kLongestPause, kFirstPause * (1 << std::min(watched.failures - 2, 7)));
  watched.next_start = now + pause;
  options_.log(fmt::format("job {}: its guardian {}; another one in {} ms", job.id, how, pause.count()));
}

std::vector<std::string> Dispatcher::guardian_command(const std::string& job) const {
  std::vector<std::string> words{options_.tesser.string(),
                                 "guardian",
                                 "--volume",
                                 volume_of(job).string(),
                                 "--server",
                                 options_.url,
                                 "--engine-settings",
                                 options_.engine_settings.string()};
  if (!options_.authorities.empty()) {
    words.insert(words.end(), {"--ca-file", options_.authorities.string()});
  }
  return words;
}

void Dispatcher::start_guardian(const JobRecord& job, Watched& watched) {
  auto process = GuardianProcess::start(guardian_command(job.id), volume_of(job.id));
  watched.started = Clock::now();
  watched.is_killed = false;
  if (!process) {
    note_failure(job, watched, fmt::format("cannot be started: {}", process.error().message));
    return;
  }
  ++guardian_starts_;
  watched.process = std::move(*process);
}

void Dispatcher::see_to_hosted_guardian(const JobRecord& job, Watched& watched) {
  const auto now = Clock::now();
  if (watched.failures > kMostFailures) {
    give_up(job, watched);
    return;
  }
  if (now < watched.next_start) {
    return;
  }
  const bool has_spoken = heard(job.id) > watched.started;
  const auto patience =
      has_spoken ? options_.lease_time * 2 : std::chrono::duration_cast<milliseconds>(kTimeToStartAtHost);
  if (watched.is_at_host && now - std::max(watched.started, heard(job.id)) <= patience) {
    return;
  }
  const bool restarts = watched.is_at_host;
  ask_engine(job.id, [this, job, restarts](Engine& engine) {
    GuardianStart start;
    start.job = job.id;
    start.team = job.team;
    start.command = guardian_command(job.id);
    start.volume = volume_of(job.id);
    start.files = {options_.engine_settings};
    if (!options_.authorities.empty()) {
      start.files.push_back(options_.authorities);
    }
    Result<void> outcome;
    if (restarts) {
      outcome = engine.guardian_host()->restart_guardian(job.id, job.team);
    }
    if (outcome) {  // also one that had ended, which the system does not start again
      outcome = engine.guardian_host()->start_guardian(start);
    }
    return [this, job, restarts, outcome] {
      Watched& watched = watched_[job.id];
      watched.is_at_host = watched.is_at_host || outcome.has_value();
      watched.started = Clock::now();
      ++guardian_starts_;
      if (restarts || !outcome) {
        note_failure(job, watched, outcome ? "did not answer" : outcome.error().message);
      }
    };
  });
}

void Dispatcher::give_up(const JobRecord& job, Watched& watched) {
  ask_engine(job.id, [this, job](Engine& engine) {
    Result<void> removed;
    if (GuardianHost* host = engine.guardian_host()) {
      removed = host->remove_guardian(job.id, job.team);
    }
    if (removed) {
      removed = engine.remove(job.id, job.team, std::nullopt);
    }
    return [this, job, removed] {
      Watched& watched = watched_[job.id];
      if (!removed) {
        options_.log(fmt::format("job {}: {}", job.id, removed.error().message));
        watched.failures = kMostFailures;  // again later
        note_failure(job, watched, "leaves learners that cannot be removed");
        watched.failures = kMostFailures + 1;
        return;
      }
      watched = {};
      change(job, JobState::kFailed, "S_GUARDIAN",
             fmt::format("its guardian ended {} times one after the other; {} says why", kMostFailures + 1,
                         (volume_of(job.id) / "guardian" / "log").string()));
    };
  });
}

void Dispatcher::remove(const JobRecord& job, Watched& watched) {
  if (Clock::now() < watched.next_start) {
    return;
  }
  const bool has_run = job.epoch > 0;
  const fs::path volume = volume_of(job.id);
  const fs::path trash = options_.data / "trash" / job.id;
  ask_engine(job.id, [this, job, has_run, volume, trash](Engine& engine) {
    Result<void> removed;
    if (GuardianHost* host = engine.guardian_host(); host != nullptr && has_run) {
      removed = host->remove_guardian(job.id, job.team);
    }
    if (removed && has_run) {
      removed = engine.remove(job.id, job.team, std::nullopt);
    }
    if (removed) {
      std::error_code error;
      fs::rename(volume, trash, error);  // it may be there already
      removed = store_.remove(job.id);
      fs::remove_all(trash, error);  // or at the next start
    }
    return [this, job, removed] {
      if (!removed) {
        options_.log(fmt::format("job {} cannot be deleted yet: {}", job.id, removed.error().message));
        watched_[job.id].next_start = Clock::now() + seconds(2);
        return;
      }
      watched_.erase(job.id);
    };
  });
}

void Dispatcher::ask_engine(const std::string& job, std::function<std::function<void()>(Engine&)> act) {
  watched_[job].engine_is_at_work = true;
  engine_->add([this, job, act = std::move(act)](Engine& engine) {
    auto then = act(engine);
    {
      const std::lock_guard lock(mutex_);
      done_.emplace_back(job, [this, job, then = std::move(then)] {
        watched_[job].engine_is_at_work = false;
        then();
      });
    }
    wake();
  });
}

bool Dispatcher::may_forget(const std::string& id, Watched& watched, const JobRecord* live) {
  if (watched.engine_is_at_work || (live != nullptr && holds_places(live->state))) {
    return false;
  }
  [[maybe_unused]] const auto how = watched.take_ended();
  if (watched.process) {
    if (!watched.is_killed && Clock::now() - std::max(watched.started, heard(id)) > kTimeToEnd) {
      options_.log(fmt::format("job {}: its guardian, process {}, does not end", id, watched.process->pid()));
      watched.process->kill();
      watched.is_killed = true;
    }
    return false;
  }
  if (watched.is_at_host) {  // the next one begins anew
    watched.is_at_host = false;
    if (const auto job = store_.job(id)) {
      engine_->add([id, team = job->team](Engine& engine) {
        [[maybe_unused]] const auto removed = engine.guardian_host()->remove_guardian(id, team);
      });
    }
  }
  return live == nullptr || live->wanted != Wanted::kDelete;
}

bool Dispatcher::reload_cluster() {
  auto quotas = store_.quotas();
  auto draining = store_.draining_nodes();
  if (!quotas || !draining) {
    log_store_error(!quotas ? quotas.error() : draining.error());
    return false;
  }
  quotas_ = std::move(*quotas);
  draining_ = std::move(*draining);
  return true;
}

void Dispatcher::place() {
  if (cluster_has_changed_.exchange(false)) {
    wants_placing_ = true;
    if (!reload_cluster()) {
      cluster_has_changed_ = true;  // again at the next look
      return;
    }
  }
  wants_placing_ = nodes_have_changed_.exchange(false) || wants_placing_;
  const auto begin = Clock::now();
  const bool explains = begin >= next_explanation_;
  if (!wants_placing_ && !(explains && wants_explaining_) && begin < renew_explanation_) {
    return;
  }
  PlacingQuestion question;
  question.time = now_microseconds();
  question.engine = engine_->view();
  question.system_places = options_.system_places;
  question.draining = draining_;
  question.quotas = quotas_;
  question.explains = explains;
  for (const auto& [id, watched] : watched_) {
    if (watched.process || watched.engine_is_at_work) {
      question.ending.insert(id);
    }
  }
  SchedulerSettings settings = kSchedulerSettings;
  settings.placement = options_.placement;
  Placing placing = find_places(jobs_, question, settings);
  if (placing.trouble != placing_trouble_) {
    placing_trouble_ = placing.trouble;
    options_.log(placing.trouble.empty() ? "jobs are placed again" : "no job is placed: " + placing.trouble);
  }
  wants_placing_ = false;
  if (!placing.steps.empty()) {
    if (const auto left = store_.carry_out(placing.steps, question.time); !left) {
      log_store_error(left.error());
      wants_placing_ = true;
    } else {
      store_error_.clear();
    }
  }
  wants_explaining_ = !explains;
  if (!explains) {
    return;
  }
  const auto end = Clock::now();
  next_explanation_ = end + kBetweenReasons * (end - begin);
  renew_explanation_ = placing.waiting.empty()
                           ? Clock::time_point::max()
                           : end + std::max<Clock::duration>(kReasonsAge, kBetweenRenewals * (end - begin));
  const std::lock_guard lock(mutex_);
  waiting_ = std::move(placing.waiting);
  queue_ = std::move(placing.queue);
}

void Dispatcher::change(const JobRecord& job, JobState state, const std::string& code, const std::string& reason) {
  const auto changed = store_.change(job.id, {state, code, reason, 0, 0, now_microseconds()});
  if (!changed) {
    options_.log(fmt::format("job {}: {}", job.id, changed.error().message));
  }
}

}  // namespace tesser::platform
