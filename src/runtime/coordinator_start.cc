// How a run of several workers begins: what each is told, its programs, the hub of replicas, their processes.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "graph/write.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/coordination.h"
#include "runtime/evaluate.h"
#include "runtime/hosts.h"
#include "runtime/passes/push_gradients.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTracedSteps = 10;
constexpr std::size_t kJobNameDigits = 8;

// Of all of a machine's interfaces, by which nobody can reach it.
bool is_any_address(const std::string& host) { return host == "0.0.0.0" || host == "[::]"; }

}  // namespace

Result<void> Coordinator::prepare() {
  const char* given = std::getenv(control::kRunTokenVariable);
  token_ = given != nullptr && *given != '\0' ? given : control::make_run_token();
  if (token_.empty()) {
    return failed("the system gives no random numbers for the token of the run");
  }
  TESSER_ASSIGN_OR_RETURN(run_, open_run(options_));
  if (distributed_.trace) {
    TESSER_ASSIGN_OR_RETURN(trace_, AtomicFile::create_output(*distributed_.trace));
  }
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
    TESSER_ASSIGN_OR_RETURN(whole.clip_norm, take_clipping(whole.lowered.workers.front()));
    if (forward_) {
      whole.forward.emplace().workers = {*forward_};
    }
    return whole;
  }
  PlanChoice choice = distributed_.plan;
  choice.for_hub = options_.replicas > 1;
  return lower_for_workers(options_.program, choice, forward_ ? &*forward_ : nullptr);
}

Result<void> Coordinator::prepare_workers() {
  TESSER_ASSIGN_OR_RETURN(const ChosenPlan chosen, choose_plan());
  for (const partition::Undescribed& each : chosen.undescribed) {
    reporter_.note("warning: " + partition::warning_text(each));
  }
  parts_ = static_cast<int>(chosen.lowered.workers.size());
  workers_ = parts_ * static_cast<int>(options_.replicas);
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
  TESSER_RETURN_IF_ERROR(describe_clipping(chosen, tasks));
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

// Each part of the gradient counts once: where it is written to checkpoints. Refuses what replicas cannot do before any
// worker is started.
Result<void> Coordinator::describe_clipping(const ChosenPlan& chosen, std::vector<WorkerTask>& tasks) const {
  int with_parameters = 0;
  for (std::size_t part = 0; options_.replicas > 1 && part < chosen.lowered.workers.size(); ++part) {
    const graph::Program& program = chosen.lowered.workers[part];
    TESSER_ASSIGN_OR_RETURN(const Updates updates, find_updates(program));
    if (updates.parameters.empty()) {
      continue;
    }
    std::vector<std::string> counted;
    for (const ShardTask& shard : shared_.shards[part]) {
      counted.insert(counted.end(), shard.values.begin(), shard.values.end());
    }
    std::erase_if(counted, [&](const std::string& name) {
      return std::none_of(updates.parameters.begin(), updates.parameters.end(),
                          [&](const UpdatedParameter& each) { return program.value(each.parameter).name == name; });
    });
    for (std::size_t worker = part; worker < tasks.size(); worker += chosen.lowered.workers.size()) {
      tasks[worker].clip_norm = chosen.clip_norm;
      tasks[worker].clip_part = with_parameters;
      tasks[worker].clip_values = counted;
    }
    ++with_parameters;
  }
  for (WorkerTask& each : tasks) {
    each.clip_parts = std::max(with_parameters, 1);
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
  if (!hosts.empty() && (distributed_.listen.empty() || is_any_address(given))) {
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
  std::string host = distributed_.listen.substr(0, distributed_.listen.rfind(':'));
  if (!distributed_.hosts.empty() && (host.empty() || is_any_address(host))) {
    TESSER_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, addresses_towards(distributed_.hosts));
    host = addresses.front();
  }
  if (is_any_address(host)) {
    return invalid_input(
        fmt::format("--listen {}: replicas on other machines meet in a hub here and need one address of this machine "
                    "for it; name that in --listen, or a hub that runs in --hub",
                    distributed_.listen));
  }
  hub_options.listen = (host.empty() ? "127.0.0.1" : host) + ":0";
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

}  // namespace tesser::runtime
