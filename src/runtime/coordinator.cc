#include "runtime/coordinator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "control/control_http.h"
#include "graph/write.h"
#include "hub/hub.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/distributed_checkpoint.h"
#include "runtime/evaluate.h"
#include "runtime/hosts.h"
#include "runtime/passes/push_gradients.h"
#include "runtime/run_directory.h"
#include "runtime/training_run.h"
#include "runtime/worker_process.h"
#include "runtime/worker_table.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLocalJoinLimit{120};
constexpr std::chrono::seconds kExternalJoinLimit{600};
constexpr std::chrono::seconds kStoppedLimit{3};
constexpr std::chrono::seconds kGoodbye{2};  // for workers to hear of the end
// How far workers may run ahead of what has been reported, so that they need not wait for permission but all stop soon.
constexpr double kAheadSeconds = 0.3;
constexpr std::int64_t kFewestStepsAhead = 2;
constexpr std::int64_t kMostStepsAhead = 1000;
constexpr int kLogLines = 8;
constexpr std::int64_t kTracedSteps = 10;
constexpr std::size_t kJobNameDigits = 8;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Coordinator {
 public:
  Coordinator(const TrainOptions& options, const DistributedOptions& distributed, TrainReporter& reporter,
              const std::atomic<bool>& stop)
      : options_(options), distributed_(distributed), reporter_(reporter), stop_(stop) {}

  Result<TrainEnd> run();

 private:
  Result<void> prepare();
  Result<void> prepare_evaluation();
  Result<void> prepare_lock();
  Result<void> prepare_workers();
  WorkerTask task() const;
  Result<ChosenPlan> choose_plan() const;
  Result<void> check_replicas(const std::vector<graph::Program>& parts) const;
  Result<void> prepare_hub();
  Result<void> start_workers();
  Result<void> listen();
  Result<void> start_remote_workers();
  Result<void> lead();
  Result<void> check_workers();
  Result<void> check_joined();
  void report_start();
  void remove_mark();
  Result<void> check_traces() const;
  void allow_steps();
  Result<void> report_steps(std::int64_t until = std::numeric_limits<std::int64_t>::max());
  Result<void> complete_checkpoints();
  void report_evaluations();
  void dismiss_workers(bool failed);
  Path trace_file(std::size_t worker) const { return directory_->path() / fmt::format("trace-{}.json", worker); }
  Result<void> write_trace() const;
  TrainEnd ending() const;
  std::int64_t epoch_of(std::int64_t step) const {  // of the step that made the count so large
    return position_after(*run_, step - 1 - run_->info.step).epoch;
  }
  std::string advice() const {
    return last_checkpoint_ ? fmt::format("; {} is complete: go on from it with --resume", last_checkpoint_->string())
                            : "";
  }

  const TrainOptions& options_;
  const DistributedOptions& distributed_;
  TrainReporter& reporter_;
  const std::atomic<bool>& stop_;

  std::optional<TrainingRun> run_;
  std::optional<graph::Program> forward_;  // what is evaluated
  std::optional<RunDirectory> directory_;
  std::optional<Path> mark_;  // a file in the checkpoint directory, until all workers have seen it
  int parts_ = 0;             // workers of each replica
  int workers_ = 0;           // of all
  std::string hub_url_;
  std::unique_ptr<hub::Hub> hub_;  // of replicas; null where another is used. Outlives the workers
  SharedState shared_;
  std::optional<ShardCollection> shards_;
  std::optional<WorkerTable> table_;  // before the server, which uses it
  std::unique_ptr<control::ControlServer> server_;
  std::string token_;
  std::vector<std::string> urls_;         // of this coordinator, by worker
  std::vector<WorkerProcess> processes_;  // by worker; none when others start them

  std::map<int, Clock::time_point> stopped_;  // local workers that have not joined, and since when they are stopped

  Clock::time_point began_;
  bool started_ = false;
  bool final_ = false;
  std::int64_t allowed_ = 0;                  // workers may run until so many steps are done
  std::int64_t reported_ = 0;                 // steps done by all
  std::deque<WorkerStep> unreported_;         // done by all
  std::deque<WorkerEvaluation> evaluations_;  // made by all, not reported
  double step_seconds_ = 0;
  double recent_seconds_ = 0;  // of a step
  std::optional<double> loss_;
  std::optional<Path> last_checkpoint_;
};

Result<void> Coordinator::prepare() {
  const char* given = std::getenv(control::kRunTokenVariable);
  token_ = given != nullptr && *given != '\0' ? given : control::make_run_token();
  if (token_.empty()) {
    return failed("the system gives no random numbers for the token of the run");
  }
  TESSER_ASSIGN_OR_RETURN(run_, open_run(options_));
  TESSER_RETURN_IF_ERROR(prepare_evaluation());
  TESSER_RETURN_IF_ERROR(open_checkpoints(options_, reporter_, *run_));
  TESSER_RETURN_IF_ERROR(prepare_lock());
  reported_ = allowed_ = run_->info.step;
  TESSER_RETURN_IF_ERROR(prepare_workers());
  return start_workers();
}

Result<void> Coordinator::prepare_evaluation() {
  if (!options_.evaluate) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(forward_, read_forward(options_.program));
  TESSER_RETURN_IF_ERROR(check_scalar_results(*forward_));
  TESSER_RETURN_IF_ERROR(DataSet::open(*options_.evaluate, batch_values(*forward_)));
  return {};
}

// Workers write into directories that they find; what a dead run left there under their names must be gone.
Result<void> Coordinator::prepare_lock() {
  if (!run_->lock) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, checkpoint_entries(*options_.checkpoint));
  for (const CheckpointEntry& entry : entries) {
    std::error_code ignored;
    if (entry.suffix == ".writing") {
      std::filesystem::remove_all(entry.path, ignored);
    }
  }
  if (run_->resumed) {
    last_checkpoint_ = run_->resumed->path();
  }
  mark_ = std::filesystem::absolute(*options_.checkpoint).lexically_normal() /
          fmt::format(".run-{}", control::make_run_token());
  TESSER_RETURN_IF_ERROR(write_file_atomically(*mark_, ""));
  return {};
}

WorkerTask Coordinator::task() const {
  const auto absolute = [](const Path& path) { return std::filesystem::absolute(path).lexically_normal().string(); };
  WorkerTask task;
  task.workers = parts_;
  task.replicas = static_cast<int>(options_.replicas);
  if (task.replicas > 1) {
    task.hub = hub_url_;
    task.hub_token = hub_ ? token_ : distributed_.hub_token;
  }
  task.program = absolute(options_.program);
  task.program_checksum = run_->info.program_checksum;
  task.state_bytes = initial_state_bytes(options_.program);
  task.data = absolute(options_.data);
  task.data_fingerprint = run_->data.fingerprint();
  task.batch = run_->data.values();
  task.resume = run_->resumed ? absolute(run_->resumed->path()) : "";
  task.step = run_->info.step;
  task.next = run_->info.next;
  task.seed = run_->info.seed;
  task.shuffle = run_->info.shuffle;
  task.first_step = run_->program.first_step;
  task.until_step = run_->until_step;
  task.checkpoint = options_.checkpoint ? absolute(*options_.checkpoint) : "";
  task.checkpoint_mark = mark_ ? mark_->string() : "";
  task.every = options_.every;
  if (forward_) {
    task.evaluation_data = absolute(*options_.evaluate);
    task.evaluation_batch = batch_values(*forward_);
  }
  task.threads = options_.threads;
  task.sharing = distributed_.external || !distributed_.hosts.empty() ? 1 : workers_;
  task.check_nan = options_.check_nan;
  task.profile = options_.profile;
  task.network = distributed_.network;
  if (distributed_.trace) {
    task.traced_steps = kTracedSteps;
    task.trace_begin =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
  }
  return task;
}

Result<ChosenPlan> Coordinator::choose_plan() const {
  if (options_.replicas > 1 && distributed_.plan.workers == 1 && !distributed_.plan.plan) {
    ChosenPlan whole;  // nothing to cut: the step as it was captured
    whole.lowered.workers = {run_->program};
    if (forward_) {
      whole.forward.emplace().workers = {*forward_};
    }
    return whole;
  }
  return lower_for_workers(options_.program, distributed_.plan, forward_ ? &*forward_ : nullptr);
}

Result<void> Coordinator::prepare_workers() {
  TESSER_ASSIGN_OR_RETURN(const ChosenPlan chosen, choose_plan());
  parts_ = static_cast<int>(chosen.lowered.workers.size());
  workers_ = parts_ * static_cast<int>(options_.replicas);
  TESSER_RETURN_IF_ERROR(check_replicas(chosen.lowered.workers));
  TESSER_RETURN_IF_ERROR(prepare_hub());
  TESSER_ASSIGN_OR_RETURN(directory_, RunDirectory::make(distributed_.run_directory));
  TESSER_ASSIGN_OR_RETURN(shared_, share_state(state_values(run_->program), chosen.lowered.workers,
                                               CheckpointWriterOptions().largest_shard_bytes));
  shards_.emplace(shared_.manifest, parts_);
  WorkerTask first = task();
  if (first.replicas > 1) {
    // Jobs of a hub that many runs use have names and nonces of their own.
    const std::string nonce = control::make_run_token();
    if (nonce.empty()) {
      return failed("the system gives no random numbers for the jobs at the hub");
    }
    first.hub_nonce = nonce;
    first.hub_job = fmt::format("{}-{}", run_->program.name, nonce.substr(0, kJobNameDigits));
  }
  std::vector<WorkerTask> tasks(static_cast<std::size_t>(workers_), first);
  for (std::size_t worker = 0; worker < tasks.size(); ++worker) {
    if (worker < shared_.shards.size()) {
      tasks[worker].shards = shared_.shards[worker];
    } else {  // all replicas have the same state; the first one's is written
      tasks[worker].checkpoint.clear();
      tasks[worker].evaluation_data.clear();
    }
    if (worker < distributed_.hosts.size()) {
      const auto end = distributed_.hosts.begin() + std::min<std::ptrdiff_t>(workers_, std::ssize(distributed_.hosts));
      tasks[worker].sharing = static_cast<int>(std::count(distributed_.hosts.begin(), end, distributed_.hosts[worker]));
    }
    if (distributed_.trace) {
      tasks[worker].trace = trace_file(worker).string();
    }
  }
  std::vector<WorkerPrograms> programs(tasks.size());
  for (std::size_t worker = 0; worker < tasks.size(); ++worker) {
    programs[worker].step = graph::program_text(chosen.lowered.workers[worker % shared_.shards.size()]);
    if (chosen.forward && !tasks[worker].evaluation_data.empty()) {
      programs[worker].forward = graph::program_text(chosen.forward->workers[worker]);
    }
  }
  table_.emplace(std::move(tasks), std::move(programs));
  return {};
}

// Refuses what replicas cannot do before any worker is started.
Result<void> Coordinator::check_replicas(const std::vector<graph::Program>& parts) const {
  for (graph::Program part : options_.replicas > 1 ? parts : std::vector<graph::Program>()) {
    TESSER_RETURN_IF_ERROR(take_updates(part, parts.size() == 1));
  }
  return {};
}

// Fills `urls_`.
Result<void> Coordinator::listen() {
  const std::vector<std::string>& hosts = distributed_.hosts;
  const auto count = static_cast<std::size_t>(workers_);
  if (!hosts.empty() && hosts.size() < count) {
    return invalid_input(
        fmt::format("the step is cut for {} workers, and --hosts has places for {}; name more hosts, "
                    "or give a host more places (NAME,NAME, or a line 'NAME 2' of a file)",
                    count, hosts.size()));
  }
  std::vector<std::string> addresses(count);
  std::string at = distributed_.listen.empty() ? "127.0.0.1:0" : distributed_.listen;
  const std::string given = at.substr(0, at.rfind(':'));
  const bool is_any = given == "0.0.0.0" || given == "[::]";
  if (!hosts.empty() && (distributed_.listen.empty() || is_any)) {
    TESSER_ASSIGN_OR_RETURN(addresses, addresses_towards({hosts.begin(), hosts.begin() + workers_}));
    if (distributed_.listen.empty()) {
      const bool one = std::all_of(addresses.begin(), addresses.end(),
                                   [&](const std::string& address) { return address == addresses.front(); });
      at = (one ? addresses.front() : "0.0.0.0") + ":0";
    }
  } else {
    std::fill(addresses.begin(), addresses.end(), given);
  }
  TESSER_ASSIGN_OR_RETURN(server_, control::ControlServer::open(
                                       at, token_, workers_, [this](const std::string& path, const std::string& body) {
                                         return table_->answer(path, body);
                                       }));
  for (const std::string& address : addresses) {
    urls_.push_back(fmt::format("http://{}:{}", address, server_->port()));
  }
  return {};
}

Result<void> Coordinator::start_remote_workers() {
  for (int worker = 0; worker < workers_; ++worker) {
    RemoteWorker remote;
    remote.launcher = distributed_.launcher;
    remote.host = distributed_.hosts[static_cast<std::size_t>(worker)];
    remote.program = distributed_.remote_program;
    remote.url = urls_[static_cast<std::size_t>(worker)];
    remote.worker = worker;
    remote.token = token_;
    ProcessOptions process = process_of(remote);
    process.log = directory_->path() / fmt::format("worker-{}.log", worker);
    table_->set_host(worker, remote.host);
    TESSER_ASSIGN_OR_RETURN(WorkerProcess started, WorkerProcess::start(process));
    processes_.push_back(std::move(started));
  }
  return {};
}

Result<void> Coordinator::prepare_hub() {
  if (options_.replicas == 1) {
    return {};
  }
  if (distributed_.hub) {
    hub_url_ = *distributed_.hub;
    return {};
  }
  hub::HubOptions hub_options;
  hub_options.listen = distributed_.listen.substr(0, distributed_.listen.rfind(':')) + ":0";
  if (distributed_.listen.empty()) {
    hub_options.listen = "127.0.0.1:0";
    if (!distributed_.hosts.empty()) {
      TESSER_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, addresses_towards(distributed_.hosts));
      hub_options.listen = addresses.front() + ":0";
    }
  }
  hub_options.token = token_;
  hub_options.pins = false;  // the workers compute on the same processors
  hub_options.through_network = distributed_.network;
  TESSER_ASSIGN_OR_RETURN(hub_, hub::Hub::open(std::move(hub_options)));
  hub_url_ = hub_->url();
  return {};
}

Result<void> Coordinator::start_workers() {
  TESSER_RETURN_IF_ERROR(listen());
  const std::string& url = urls_.front();
  began_ = Clock::now();
  if (distributed_.external) {
    reporter_.note(
        fmt::format("the coordinator waits at {} for workers 0 to {}: tesser worker --coordinator "
                    "http://HOST:{} --worker I, with {} in their environment",
                    url, workers_ - 1, server_->port(), control::kRunTokenVariable));
    return {};
  }
  if (!distributed_.hosts.empty()) {
    return start_remote_workers();
  }
  std::error_code error;
  const Path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return failed("the path of this program is unknown, so no worker can be started: " + error.message());
  }
  for (int worker = 0; worker < workers_; ++worker) {
    ProcessOptions process;
    process.command = {program.string(), "worker", "--coordinator", url, "--worker", std::to_string(worker)};
    process.environment = {fmt::format("{}={}", control::kRunTokenVariable, token_)};
    process.log = directory_->path() / fmt::format("worker-{}.log", worker);
    TESSER_ASSIGN_OR_RETURN(WorkerProcess started, WorkerProcess::start(process));
    table_->set_process(worker, started.id());
    processes_.push_back(std::move(started));
  }
  return {};
}

Result<void> Coordinator::check_joined() {
  const auto limit = distributed_.external ? kExternalJoinLimit : kLocalJoinLimit;
  const std::vector<int> missing = table_->missing();
  if (!missing.empty() && Clock::now() - began_ > limit) {
    return failed(fmt::format("worker{} {} did not come within {} s", missing.size() > 1 ? "s" : "",
                              fmt::join(missing, ", "), limit.count()));
  }
  // Before it has joined, a worker's silence means nothing.
  for (const int worker : processes_.empty() ? std::vector<int>() : missing) {
    if (!processes_[static_cast<std::size_t>(worker)].is_stopped()) {
      stopped_.erase(worker);
    } else if (Clock::now() - stopped_.try_emplace(worker, Clock::now()).first->second > kStoppedLimit) {
      return failed(fmt::format("{} has been stopped by a signal", table_->name_of(worker)));
    }
  }
  return {};
}

Result<void> Coordinator::check_workers() {
  if (!started_) {
    TESSER_RETURN_IF_ERROR(check_joined());
  }
  std::vector<std::optional<std::string>> died(static_cast<std::size_t>(workers_));
  for (std::size_t worker = 0; worker < processes_.size(); ++worker) {
    died[worker] = processes_[worker].how_it_ended();
  }
  const std::optional<WorkerTrouble> trouble = table_->trouble(died);
  if (!trouble) {
    return {};
  }
  // The data may be to blame. Not all workers may have reported the last step that was good.
  for (std::int64_t step = reported_; options_.check_nan && started_ && step < std::min(allowed_, reported_ + 2);
       ++step) {
    DataPosition position = position_after(*run_, step - run_->info.step);
    for (std::int64_t replica = 0; replica < options_.replicas; ++replica, ++position.batch) {
      if (const Result<void> checked = check_batch(run_->data, options_.data, run_->info, position); !checked) {
        return failed(
            fmt::format("step {} (epoch {}): {}{}", step + 1, position.epoch + 1, checked.error().message, advice()));
      }
    }
  }
  const std::string lines =
      processes_.empty() ? "" : processes_[static_cast<std::size_t>(trouble->worker)].last_lines(kLogLines);
  const std::string message = trouble->message + advice() + (lines.empty() ? "" : "\n  its last lines:" + lines);
  return trouble->is_input ? Result<void>(invalid_input(message)) : Result<void>(failed(message));
}

void Coordinator::remove_mark() {
  if (mark_) {
    std::error_code ignored;
    std::filesystem::remove(*mark_, ignored);
    mark_.reset();
  }
}

// Every worker has made its file by now.
Result<void> Coordinator::check_traces() const {
  for (int worker = 0; distributed_.trace && worker < workers_; ++worker) {
    std::error_code error;
    if (!std::filesystem::exists(trace_file(static_cast<std::size_t>(worker)), error)) {
      return invalid_input(
          fmt::format("{} writes its part of the trace where the coordinator does not see it; give a "
                      "--run-directory that all machines share",
                      table_->name_of(worker)));
    }
  }
  return {};
}

void Coordinator::report_start() {
  remove_mark();
  TrainStart start = training_start(options_, *run_);
  start.workers = workers_;
  start.paths = table_->paths();
  start.resumed_from = last_checkpoint_;
  for (const WorkerSummary& summary : table_->summaries()) {
    start.predicted_peak_bytes = std::max(start.predicted_peak_bytes, summary.predicted_peak_bytes);
  }
  reporter_.started(start);
  began_ = Clock::now();
  started_ = true;
}

void Coordinator::allow_steps() {
  if (final_) {
    return;
  }
  if (stop_) {
    final_ = true;
  } else {
    const double steps = recent_seconds_ > 0 ? kAheadSeconds / recent_seconds_ : 0;
    const std::int64_t ahead =
        std::clamp(static_cast<std::int64_t>(std::min(steps, 1e6)), kFewestStepsAhead, kMostStepsAhead);
    allowed_ = std::max(allowed_, std::min(run_->until_step, reported_ + ahead));
    final_ = allowed_ >= run_->until_step;
  }
  table_->allow(allowed_, final_);
}

Result<void> Coordinator::report_steps(std::int64_t until) {
  TESSER_ASSIGN_OR_RETURN(std::vector<WorkerStep> steps, table_->take_steps());
  std::move(steps.begin(), steps.end(), std::back_inserter(unreported_));
  // After the steps: a worker reports an evaluation before the step that follows it.
  TESSER_ASSIGN_OR_RETURN(std::vector<WorkerEvaluation> evaluations, table_->take_evaluations());
  std::move(evaluations.begin(), evaluations.end(), std::back_inserter(evaluations_));
  report_evaluations();
  while (!unreported_.empty() && unreported_.front().step <= until) {
    const WorkerStep step = std::move(unreported_.front());
    unreported_.pop_front();
    StepReport report;
    report.step = step.step;
    report.epoch = epoch_of(step.step);
    report.loss = step.loss;
    report.seconds = step.seconds;
    const graph::Program& program = run_->program;
    for (std::size_t i = 0; i < std::min(program.metrics.size(), step.metrics.size()); ++i) {
      report.metrics.emplace_back(program.metrics[i].name, step.metrics[i]);
    }
    for (const graph::Schedule& schedule : program.schedules) {
      report.learning_rates.push_back(schedule.at(step.step - 1));
    }
    reported_ = step.step;
    loss_ = step.loss;
    step_seconds_ += step.seconds;
    recent_seconds_ = recent_seconds_ > 0 ? 0.8 * recent_seconds_ + 0.2 * step.seconds : step.seconds;
    reporter_.stepped(report);
    if (!std::isfinite(step.loss)) {
      return failed(non_finite_loss(step.step, report.epoch, step.loss, options_.check_nan) + advice());
    }
    report_evaluations();
  }
  return {};
}

// Those after steps that have been reported.
void Coordinator::report_evaluations() {
  while (!evaluations_.empty() && evaluations_.front().step <= reported_) {
    const WorkerEvaluation made = std::move(evaluations_.front());
    evaluations_.pop_front();
    Evaluation evaluation;
    for (std::size_t i = 0; i < made.names.size(); ++i) {
      evaluation.results.emplace_back(made.names[i], made.results[i]);
    }
    evaluation.batches = made.batches;
    evaluation.samples = made.samples;
    evaluation.left_out = made.left_out;
    evaluation.seconds = made.seconds;
    const std::int64_t epoch = made.step > run_->info.step ? epoch_of(made.step) : run_->info.next.epoch;
    reporter_.evaluated(made.step, epoch, evaluation);
  }
}

Result<void> Coordinator::complete_checkpoints() {
  for (const auto& [worker, written] : table_->take_written()) {
    std::optional<Manifest> manifest = shards_->add(worker, written);
    if (!manifest) {
      continue;
    }
    manifest->info = run_->info;
    manifest->info.step = written.step;
    manifest->info.next = position_after(*run_, written.step - run_->info.step);
    CheckpointWriterOptions writer_options;
    writer_options.keep = options_.keep;
    Result<CheckpointWritten> complete = complete_checkpoint(*run_->lock, writer_options, *manifest);
    if (!complete) {
      return failed(fmt::format("the checkpoint could not be written, so the run stops after step {}: {}{}", reported_,
                                complete.error().message, advice()));
    }
    complete->seconds += written.seconds;
    TESSER_RETURN_IF_ERROR(report_steps(written.step));
    last_checkpoint_ = complete->path;
    reporter_.checkpoint_written(*complete);
    for (const std::string& note : complete->notes) {
      reporter_.note(note);
    }
  }
  return {};
}

Result<void> Coordinator::lead() {
  while (true) {
    table_->wait();
    // What was done and written before a worker failed still counts.
    if (started_) {
      TESSER_RETURN_IF_ERROR(complete_checkpoints());
      TESSER_RETURN_IF_ERROR(report_steps());
    }
    TESSER_RETURN_IF_ERROR(check_workers());
    if (!started_ && table_->all_prepared()) {
      TESSER_RETURN_IF_ERROR(check_traces());
      report_start();
    }
    if (started_) {
      allow_steps();
      if (table_->all_ended()) {
        TESSER_RETURN_IF_ERROR(complete_checkpoints());
        return report_steps();
      }
    }
  }
}

// Workers hear of the end with their next report; local ones that do not end then are killed.
void Coordinator::dismiss_workers(bool failed) {
  remove_mark();
  if (!table_ || !server_) {
    return;
  }
  table_->abort();
  if (failed) {
    for (WorkerProcess& process : processes_) {
      process.kill();
    }
  }
  const auto has_ended = [](WorkerProcess& process) { return process.how_it_ended().has_value(); };
  const auto deadline = Clock::now() + kGoodbye;
  while (Clock::now() < deadline) {
    const bool gone =
        processes_.empty() ? table_->all_know_the_end() : std::all_of(processes_.begin(), processes_.end(), has_ended);
    if (gone) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  processes_.clear();
  if (failed && run_->lock) {
    Result<std::vector<CheckpointEntry>> entries = checkpoint_entries(run_->lock->directory());
    for (const CheckpointEntry& entry : entries ? *entries : std::vector<CheckpointEntry>()) {
      std::error_code ignored;
      if (entry.suffix == ".writing") {
        std::filesystem::remove_all(entry.path, ignored);
      }
    }
  }
}

// Chrome's trace format: a process a worker.
Result<void> Coordinator::write_trace() const {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const std::vector<WorkerSummary> summaries = table_->summaries();
  for (std::size_t worker = 0; worker < summaries.size(); ++worker) {
    TESSER_ASSIGN_OR_RETURN(const std::string events, read_file(trace_file(worker)));
    const std::string name = worker_name(task(), static_cast<int>(worker));
    text += fmt::format("{}{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"args\":{{\"name\":{}}}}}{}",
                        worker > 0 ? ",\n" : "", worker,
                        json_string(fmt::format("{} on {}", name, summaries[worker].host)), events);
  }
  return write_file_atomically(*distributed_.trace, text + "\n]}\n");
}

TrainEnd Coordinator::ending() const {
  TrainEnd end;
  end.steps = reported_ - run_->info.step;
  end.step = reported_;
  end.seconds = seconds_since(began_);
  end.samples_per_second =
      step_seconds_ > 0 ? static_cast<double>(end.steps * run_->data.batch_size() * run_->replicas) / step_seconds_ : 0;
  end.workers = table_->summaries();
  for (const WorkerSummary& worker : end.workers) {
    end.memory.predicted_peak_bytes = std::max(end.memory.predicted_peak_bytes, worker.predicted_peak_bytes);
    end.memory.arena_bytes = std::max(end.memory.arena_bytes, worker.peak_bytes - worker.unplanned_bytes);
    end.memory.scratch_bytes = std::max(end.memory.scratch_bytes, worker.scratch_bytes);
    end.memory.unplanned_allocations = std::max(end.memory.unplanned_allocations, worker.unplanned_allocations);
    end.memory.unplanned_bytes = std::max(end.memory.unplanned_bytes, worker.unplanned_bytes);
    end.resident_peak_bytes = std::max(end.resident_peak_bytes, worker.resident_peak_bytes);
  }
  for (const OperatorTotal& total : table_->operators()) {
    end.operators.push_back({total.op, total.calls, total.seconds, total.scratch_bytes});
  }
  end.interrupted = reported_ < run_->until_step;
  end.final_loss = loss_;
  end.checkpoint = last_checkpoint_;
  return end;
}

Result<TrainEnd> Coordinator::run() {
  Result<void> outcome = prepare();
  if (outcome) {
    outcome = lead();
  }
  if (outcome && distributed_.trace) {
    outcome = write_trace();
  }
  if (!outcome) {
    dismiss_workers(true);
    return tl::unexpected<Error>(outcome.error());
  }
  const TrainEnd end = ending();
  dismiss_workers(false);
  reporter_.ended(end);
  return end;
}

}  // namespace

Result<TrainEnd> train_distributed(const TrainOptions& options, const DistributedOptions& distributed,
                                   TrainReporter& reporter, const std::atomic<bool>& stop) {
  Coordinator coordinator(options, distributed, reporter, stop);
  return coordinator.run();
}

}  // namespace tesser::runtime
