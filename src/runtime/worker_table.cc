#include "runtime/worker_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include <fmt/format.h>

namespace tesser::runtime {
namespace {

constexpr std::chrono::milliseconds kSilence{3000};
// When a worker has lost another, so long is waited for what became of that one; it counts as silent earlier then.
constexpr std::chrono::milliseconds kCauseGrace{700};
constexpr std::chrono::milliseconds kShortSilence{1500};
constexpr std::chrono::milliseconds kTick{50};

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace

WorkerTable::WorkerTable(std::vector<WorkerTask> tasks, std::vector<WorkerPrograms> programs)
    : tasks_(std::move(tasks)), programs_(std::move(programs)), entries_(tasks_.size()) {
  permission_.until_step = tasks_.front().step;
}

Result<std::string> WorkerTable::answer(const std::string& path, const std::string& body) {
  const auto known = [&](int worker) -> Result<void> {
    if (worker >= static_cast<int>(tasks_.size())) {
      return invalid_input(fmt::format("this run has workers 0 to {}{}, not {}", tasks_.size() - 1,
                                       tasks_.front().replicas > 1 ? " in all its replicas" : "", worker));
    }
    return {};
  };
  if (path == "/task" || path == "/program") {
    TESSER_ASSIGN_OR_RETURN(const int worker, read_worker_number(body));
    TESSER_RETURN_IF_ERROR(known(worker));
    const auto place = static_cast<std::size_t>(worker);
    return path == "/task" ? to_json(tasks_[place]) : to_json(programs_[place]);
  }
  if (path == "/join") {
    TESSER_ASSIGN_OR_RETURN(const Joining joining, read_joining(body));
    TESSER_RETURN_IF_ERROR(known(joining.worker));
    return join(joining);
  }
  if (path == "/report") {
    TESSER_ASSIGN_OR_RETURN(WorkerReport received, read_report(body));
    TESSER_RETURN_IF_ERROR(known(received.worker));
    return report(std::move(received));
  }
  return invalid_input(path + ": no such request");
}

Result<std::string> WorkerTable::join(const Joining& joining) {
  const std::lock_guard guard(mutex_);
  Entry& entry = entries_[static_cast<std::size_t>(joining.worker)];
  if (entry.joining && entry.joining->address != joining.address) {
    return invalid_input(
        fmt::format("{} is there already; each worker needs a number of its own", described(joining.worker)));
  }
  entry.joining = joining;
  if (!entry.host.empty()) {
    entry.joining->host = entry.host;
  }
  entry.heard = Clock::now();
  news_ = true;
  changed_.notify_all();
  std::vector<std::string> addresses;
  for (const Entry& each : entries_) {
    if (!each.joining) {
      return to_json(std::vector<std::string>());
    }
    addresses.push_back(each.joining->address);
  }
  return to_json(addresses);
}

Result<std::string> WorkerTable::report(WorkerReport received) {
  const std::lock_guard guard(mutex_);
  Entry& entry = entries_[static_cast<std::size_t>(received.worker)];
  entry.heard = Clock::now();
  if (!received.paths.empty()) {
    entry.paths = std::move(received.paths);
  }
  if (received.memory) {
    entry.memory = received.memory;
  }
  for (WorkerStep& step : received.steps) {
    if (step.step > entry.last_step) {  // else an answer was lost, and it is told again
      entry.last_step = step.step;
      entry.summary.compute_seconds += step.seconds - step.waiting_seconds - step.transfer_seconds;
      entry.summary.waiting_seconds += step.waiting_seconds;
      entry.summary.transfer_seconds += step.transfer_seconds;
      entry.summary.sent_bytes += step.sent_bytes;
      entry.steps.push_back(std::move(step));
    }
  }
  for (WorkerEvaluation& evaluation : received.evaluations) {
    if (evaluation.step > entry.last_evaluation) {
      entry.last_evaluation = evaluation.step;
      entry.evaluations.push_back(std::move(evaluation));
    }
  }
  for (WrittenShards& written : received.written) {
    written_.emplace_back(received.worker, std::move(written));
  }
  if (received.failure && !entry.failure) {
    entry.failure = std::move(received.failure);
    entry.failed = Clock::now();
  }
  if (received.ended && !entry.ended) {
    entry.ended = true;
    entry.operators = std::move(received.operators);
  }
  news_ = true;
  changed_.notify_all();
  entry.knows_the_end = permission_.abort;
  return to_json(permission_);
}

void WorkerTable::set_process(int worker, std::int64_t process) {
  const std::lock_guard guard(mutex_);
  entries_[static_cast<std::size_t>(worker)].process = process;
}

void WorkerTable::set_host(int worker, const std::string& host) {
  const std::lock_guard guard(mutex_);
  entries_[static_cast<std::size_t>(worker)].host = host;
}

void WorkerTable::wait() {
  std::unique_lock guard(mutex_);
  changed_.wait_for(guard, kTick, [this] { return news_; });
  news_ = false;
}

void WorkerTable::allow(std::int64_t until_step, bool final) {
  const std::lock_guard guard(mutex_);
  permission_.until_step = until_step;
  permission_.final = final;
}

void WorkerTable::abort() {
  const std::lock_guard guard(mutex_);
  permission_.abort = true;
}

std::vector<int> WorkerTable::missing() const {
  const std::lock_guard guard(mutex_);
  std::vector<int> missing;
  for (std::size_t worker = 0; worker < entries_.size(); ++worker) {
    if (!entries_[worker].joining) {
      missing.push_back(static_cast<int>(worker));
    }
  }
  return missing;
}

bool WorkerTable::has_joined(int worker) const {
  const std::lock_guard guard(mutex_);
  return entries_[static_cast<std::size_t>(worker)].joining.has_value();
}

bool WorkerTable::all_prepared() const {
  const std::lock_guard guard(mutex_);
  return std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.memory.has_value(); });
}

bool WorkerTable::all_ended() const {
  const std::lock_guard guard(mutex_);
  return std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.ended; });
}

bool WorkerTable::all_know_the_end() const {
  const std::lock_guard guard(mutex_);
  return std::all_of(entries_.begin(), entries_.end(), [this](const Entry& entry) {
    return !entry.joining || entry.knows_the_end || entry.failure || is_silent(entry, kShortSilence);
  });
}

Result<std::vector<WorkerStep>> WorkerTable::take_steps() {
  const std::lock_guard guard(mutex_);
  std::vector<WorkerStep> merged;
  while (std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return !entry.steps.empty(); })) {
    TESSER_ASSIGN_OR_RETURN(WorkerStep all, take_step_of(0));
    const int replicas = tasks_.front().replicas;
    for (int replica = 1; replica < replicas; ++replica) {
      TESSER_ASSIGN_OR_RETURN(const WorkerStep step, take_step_of(replica));
      if (step.step != all.step || step.metrics.size() != all.metrics.size()) {
        return failed(fmt::format("replica {} is at step {}, replica 0 at step {}; this is a mistake of tesser",
                                  replica, step.step, all.step));
      }
      all.loss += step.loss;
      for (std::size_t i = 0; i < step.metrics.size(); ++i) {
        all.metrics[i] += step.metrics[i];
      }
      all.seconds = std::max(all.seconds, step.seconds);
    }
    all.loss /= replicas;
    for (double& metric : all.metrics) {
      metric /= replicas;
    }
    merged.push_back(std::move(all));
  }
  return merged;
}

Result<WorkerStep> WorkerTable::take_step_of(int replica) {
  const int workers = tasks_.front().workers;
  const int first = replica * workers;
  WorkerStep next = entries_[static_cast<std::size_t>(first)].steps.front();
  for (int worker = first; worker < first + workers; ++worker) {
    Entry& entry = entries_[static_cast<std::size_t>(worker)];
    const WorkerStep step = std::move(entry.steps.front());
    entry.steps.pop_front();
    bool agrees = step.step == next.step && same(step.loss, next.loss) && step.metrics.size() == next.metrics.size();
    for (std::size_t i = 0; agrees && i < step.metrics.size(); ++i) {
      agrees = same(step.metrics[i], next.metrics[i]);
    }
    if (!agrees) {
      return failed(
          fmt::format("{} has loss {} at step {}, {} has {} at step {}: the workers' programs do not fit each other; "
                      "this is a mistake of tesser",
                      worker_name(tasks_.front(), worker), step.loss, step.step, worker_name(tasks_.front(), first),
                      next.loss, next.step));
    }
    next.seconds = std::max(next.seconds, step.seconds);
  }
  return next;
}

std::vector<std::pair<int, WrittenShards>> WorkerTable::take_written() {
  const std::lock_guard guard(mutex_);
  return std::exchange(written_, {});
}

Result<std::vector<WorkerEvaluation>> WorkerTable::take_evaluations() {
  const std::lock_guard guard(mutex_);
  std::vector<WorkerEvaluation> merged;
  const auto evaluating = static_cast<std::size_t>(std::count_if(
      tasks_.begin(), tasks_.end(), [](const WorkerTask& task) { return !task.evaluation_data.empty(); }));
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(evaluating);
  const auto has_made_one = [](const Entry& entry) { return !entry.evaluations.empty(); };
  while (evaluating > 0 && std::all_of(entries_.begin(), end, has_made_one)) {
    WorkerEvaluation next = entries_.front().evaluations.front();
    for (std::size_t worker = 0; worker < evaluating; ++worker) {
      const WorkerEvaluation own = std::move(entries_[worker].evaluations.front());
      entries_[worker].evaluations.pop_front();
      if (own.step != next.step ||
          !std::equal(own.results.begin(), own.results.end(), next.results.begin(), next.results.end(), same)) {
        return failed(
            fmt::format("worker {} has evaluated otherwise after step {} than worker 0 after step {}: the workers' "
                        "programs do not fit each other; this is a mistake of tesser",
                        worker, own.step, next.step));
      }
      next.seconds = std::max(next.seconds, own.seconds);
    }
    merged.push_back(std::move(next));
  }
  return merged;
}

bool WorkerTable::is_silent(const Entry& entry, std::chrono::milliseconds limit) const {
  return entry.joining && Clock::now() - entry.heard > limit;
}

std::string WorkerTable::described(int worker) const {
  const Entry& entry = entries_[static_cast<std::size_t>(worker)];
  const std::string name = worker_name(tasks_[static_cast<std::size_t>(worker)], worker);
  if (!entry.joining && !entry.host.empty()) {
    return fmt::format("{} (on {})", name, entry.host);
  }
  if (entry.joining) {
    return fmt::format("{} (process {} on {})", name, entry.joining->process, entry.joining->host);
  }
  return entry.process ? fmt::format("{} (process {})", name, *entry.process) : name;
}

std::string WorkerTable::name_of(int worker) const {
  const std::lock_guard guard(mutex_);
  return described(worker);
}

std::optional<WorkerTrouble> WorkerTable::trouble(const std::vector<std::optional<std::string>>& died) const {
  const std::lock_guard guard(mutex_);
  const auto silent = [&](int worker, std::chrono::milliseconds limit) -> std::optional<WorkerTrouble> {
    const Entry& entry = entries_[static_cast<std::size_t>(worker)];
    if (entry.ended || entry.failure || !is_silent(entry, limit)) {
      return std::nullopt;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - entry.heard).count();
    return WorkerTrouble{worker,
                         fmt::format("{} has not been heard of for {:.1f} s: it is stopped, or its machine or the "
                                     "network are",
                                     described(worker), seconds),
                         false};
  };
  // What is seen of a worker counts before what it says, and that before what others say of it; of several that have
  // failed the first one, as its end is often why the others failed.
  std::optional<int> first;
  for (int worker = 0; worker < static_cast<int>(entries_.size()); ++worker) {
    const Entry& entry = entries_[static_cast<std::size_t>(worker)];
    const std::optional<std::string>& end = died[static_cast<std::size_t>(worker)];
    if (end && !entry.failure && !entry.ended) {
      return WorkerTrouble{worker, fmt::format("{} {}", described(worker), *end), false};
    }
    if (entry.failure && entry.failure->lost_peers.empty() &&
        (!first || entry.failed < entries_[static_cast<std::size_t>(*first)].failed)) {
      first = worker;
    }
  }
  if (first) {
    const WorkerFailure& failure = *entries_[static_cast<std::size_t>(*first)].failure;
    return WorkerTrouble{*first, fmt::format("{} failed: {}", described(*first), failure.message),
                         failure.exit_code == 2};
  }
  for (int worker = 0; worker < static_cast<int>(entries_.size()); ++worker) {
    if (auto found = silent(worker, kSilence)) {
      return found;
    }
  }
  for (int worker = 0; worker < static_cast<int>(entries_.size()); ++worker) {
    const Entry& entry = entries_[static_cast<std::size_t>(worker)];
    if (!entry.failure || Clock::now() - entry.failed < kCauseGrace) {
      continue;
    }
    for (const std::int64_t peer : entry.failure->lost_peers) {
      if (auto found = silent(static_cast<int>(peer), kShortSilence)) {
        return found;
      }
    }
    return WorkerTrouble{
        static_cast<int>(entry.failure->lost_peers.front()),
        fmt::format("{} has lost {}: {}", described(worker),
                    described(static_cast<int>(entry.failure->lost_peers.front())), entry.failure->message),
        false};
  }
  return std::nullopt;
}

std::vector<WorkerSummary> WorkerTable::summaries() const {
  const std::lock_guard guard(mutex_);
  std::vector<WorkerSummary> summaries;
  for (std::size_t worker = 0; worker < entries_.size(); ++worker) {
    const Entry& entry = entries_[worker];
    WorkerSummary summary = entry.summary;
    summary.replica = static_cast<int>(worker) / tasks_.front().workers;
    summary.worker = static_cast<int>(worker) % tasks_.front().workers;
    if (entry.joining) {
      summary.host = entry.joining->host;
    }
    if (entry.memory) {
      summary.predicted_peak_bytes = entry.memory->predicted_bytes;
      summary.peak_bytes = entry.memory->measured_bytes;
      summary.scratch_bytes = entry.memory->scratch_bytes;
      summary.unplanned_allocations = entry.memory->unplanned_allocations;
      summary.unplanned_bytes = entry.memory->unplanned_bytes;
      summary.copied_gradient_bytes = entry.memory->copied_gradient_bytes;
      summary.resident_peak_bytes = entry.memory->resident_bytes;
    }
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

std::vector<OperatorTotal> WorkerTable::operators() const {
  const std::lock_guard guard(mutex_);
  return entries_.front().operators;
}

std::vector<std::string> WorkerTable::paths() const {
  const std::lock_guard guard(mutex_);
  std::set<std::string> paths;
  for (const Entry& entry : entries_) {
    for (const std::string& path : entry.paths) {
      if (!path.empty()) {
        paths.insert(path);
      }
    }
  }
  return {paths.begin(), paths.end()};
}

}  // namespace tesser::runtime
