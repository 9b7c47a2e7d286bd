#include "runtime/worker.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/file.h"
#include "graph/read.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/control_messages.h"
#include "runtime/evaluate.h"
#include "runtime/executor.h"
#include "runtime/hub_exchange.h"
#include "runtime/loader.h"
#include "runtime/memory_limit.h"
#include "runtime/training_run.h"
#include "runtime/transport_exchange.h"
#include "runtime/weights.h"
#include "runtime/worker_link.h"
#include "runtime/worker_trace.h"

namespace tesser::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Of one request; a coordinator that is slower is asked again.
constexpr std::chrono::milliseconds kPatience{1500};
constexpr std::chrono::milliseconds kAskAgain{30};
constexpr std::chrono::seconds kConnectLimit{60};  // an engine may start workers before their coordinator listens
constexpr std::chrono::seconds kAnswerLimit{4};    // of a coordinator that has answered before
constexpr std::chrono::milliseconds kWaitSlice{100};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

int usable_processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string machine_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

// Peers of another run are told apart by a number that follows from the token.
std::uint64_t run_number(const std::string& token) {
  const std::uint64_t high = crc32c(token.data(), token.size());
  return high << 32 | crc32c(token.data(), token.size(), 1);
}

// Of the random numbers of a replica; the first has the run's.
std::int64_t replica_seed(std::int64_t seed, int replica) {
  if (replica == 0) {
    return seed;
  }
  std::uint64_t mixed = static_cast<std::uint64_t>(seed) + static_cast<std::uint64_t>(replica) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
  return static_cast<std::int64_t>(mixed ^ (mixed >> 31U));
}

template <typename T>
Result<T> or_error(transport::Outcome<T> outcome) {
  if (!outcome) {
    return tl::unexpected<Error>(transport::to_error(outcome.error()));
  }
  return std::move(*outcome);
}

// The state values that one of this worker's shards holds, and where they lie in the copy that is written.
struct Shard {
  std::string file;
  std::vector<std::size_t> values;
};

class Worker {
 public:
  explicit Worker(const WorkerOptions& options) : options_(options) {}

  Result<void> run();

 private:
  Result<std::string> ask(const std::string& path, const std::string& body, std::chrono::seconds limit);
  Result<void> take_task();
  Result<void> join();
  Result<void> check_inputs();
  Result<void> connect(const std::vector<std::string>& addresses);
  Result<void> work();
  Result<void> prepare();
  Result<void> prepare_hub(const graph::Program& program);
  Result<void> prepare_evaluation(TransportExchangeOptions exchange_options, ExecutorOptions executor_options);
  Result<void> prepare_loader();
  Result<void> prepare_writer();
  Result<void> train();
  Result<void> step();
  Result<void> after_step();
  Result<void> evaluate_now();
  Result<void> write_state();
  Result<void> take_written(std::optional<Result<CheckpointWritten>> outcome);
  void report_memory();
  std::vector<std::int64_t> lost_peers() const;
  int replica() const { return options_.worker / task_.workers; }
  int part() const { return options_.worker % task_.workers; }  // number within the replica
  int of_run(std::size_t part) const { return replica() * task_.workers + static_cast<int>(part); }
  Result<void> cancelled() const { return failed(link_ ? link_->reason() : "the run has ended"); }

  const WorkerOptions& options_;
  std::unique_ptr<control::ControlClient> client_;  // until the link has it
  WorkerTask task_;
  std::unique_ptr<transport::Device> device_;
  std::vector<std::shared_ptr<transport::Channel>> channels_;  // by worker of the replica
  std::vector<std::string> paths_;                             // how they are reached, and the hub
  std::optional<WorkerLink> link_;
  WorkerPrograms programs_;  // until they are compiled
  std::unique_ptr<TransportExchange> exchange_;
  std::unique_ptr<HubExchange> hub_;  // of one of several replicas
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<TransportExchange> forward_exchange_;
  std::unique_ptr<Executor> forward_;
  std::optional<DataSet> evaluation_data_;
  std::optional<WorkerTrace> trace_;
  std::optional<DataSet> data_;
  std::optional<Loader> loader_;
  std::vector<MutableTensorView> batch_;  // the parts that this worker has
  std::vector<StateValue> written_values_;
  std::vector<Shard> shards_;
  std::optional<CheckpointWriter> writer_;
  std::int64_t step_ = 0;  // steps done
  DataPosition next_;
  std::int64_t saved_step_ = -1;
  bool memory_reported_ = false;
};

// Of the coordinator, which may be slow, before there is a link.
Result<std::string> Worker::ask(const std::string& path, const std::string& body, std::chrono::seconds limit) {
  const auto deadline = Clock::now() + limit;
  while (true) {
    Result<std::string> answer = client_->post(path, body);
    if (answer || answer.error().code == ErrorCode::kInvalidInput || Clock::now() > deadline) {
      return answer;
    }
    if (task_.program.empty() && options_.stop != nullptr && *options_.stop) {
      return failed(fmt::format("told to end before the coordinator at {} was found", options_.coordinator));
    }
    std::this_thread::sleep_for(kAskAgain * 10);
  }
}

Result<void> Worker::take_task() {
  TESSER_ASSIGN_OR_RETURN(client_, control::ControlClient::open(options_.coordinator, options_.token, kPatience));
  const std::string request = fmt::format("{{\"worker\":{}}}", options_.worker);
  TESSER_ASSIGN_OR_RETURN(const std::string task, ask("/task", request, kConnectLimit));
  TESSER_ASSIGN_OR_RETURN(task_, read_task(task));
  TESSER_ASSIGN_OR_RETURN(const std::string programs, ask("/program", request, kAnswerLimit));
  TESSER_ASSIGN_OR_RETURN(programs_, read_programs(programs));
  return {};
}

// Machines may have copies of their own of what is read, and must share what is written.
Result<void> Worker::check_inputs() {
  TESSER_ASSIGN_OR_RETURN(data_, DataSet::open(task_.data, task_.batch));
  TESSER_ASSIGN_OR_RETURN(const std::string checksum,
                          program_checksum(std::filesystem::path(task_.program) / "program.json"));
  const auto differs = [](const std::string& path) {
    return invalid_input(
        fmt::format("{}: is another one on {} than where the run is led; copy it there again, or let the machines "
                    "share a file system",
                    path, machine_name()));
  };
  if (checksum != task_.program_checksum || initial_state_bytes(task_.program) != task_.state_bytes) {
    return differs(task_.program);
  }
  if (data_->fingerprint() != task_.data_fingerprint) {
    return differs(task_.data);
  }
  std::error_code error;
  if (!task_.checkpoint.empty() && !std::filesystem::exists(task_.checkpoint_mark, error)) {
    return invalid_input(
        fmt::format("{}: {} does not see the coordinator's directory under this path; workers write checkpoints into "
                    "one directory, which all machines must share",
                    task_.checkpoint, machine_name()));
  }
  // The coordinator looks whether it is there before the first step.
  return task_.trace.empty() ? Result<void>() : write_file_atomically(task_.trace, "");
}

Result<void> Worker::join() {
  std::string host = options_.listen;
  if (host.empty()) {
    TESSER_ASSIGN_OR_RETURN(host, client_->own_host());
  }
  transport::DeviceOptions device_options;
  device_options.name = worker_name(task_, options_.worker);
  device_options.listen = host + ":0";
  device_options.run = run_number(options_.token);
  device_options.paths = task_.network ? transport::Paths::kNetworkOnly : transport::Paths::kAny;
  TESSER_ASSIGN_OR_RETURN(device_, or_error(transport::Device::open(device_options)));
  const Joining joining{options_.worker, machine_name(), ::getpid(), device_->address()};
  std::vector<std::string> addresses;
  while (true) {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, ask("/join", to_json(joining), kAnswerLimit));
    TESSER_ASSIGN_OR_RETURN(addresses, read_addresses(answer));
    if (!addresses.empty()) {
      break;
    }
    std::this_thread::sleep_for(kAskAgain);
  }
  link_.emplace(std::move(client_), options_.worker);
  const auto first = addresses.begin() + of_run(0);
  return connect({first, first + task_.workers});
}

// Each pair has one channel, made by the one with the higher number.
Result<void> Worker::connect(const std::vector<std::string>& addresses) {
  channels_.resize(addresses.size());
  const transport::Deadline deadline = transport::in(kConnectLimit);
  for (int peer = 0; peer < part(); ++peer) {
    TESSER_ASSIGN_OR_RETURN(channels_[static_cast<std::size_t>(peer)],
                            or_error(device_->connect(addresses[static_cast<std::size_t>(peer)], deadline)));
  }
  for (auto missing = addresses.size() - static_cast<std::size_t>(part()) - 1; missing > 0;) {
    auto channel = device_->accept(transport::in(kWaitSlice));
    if (channel) {
      for (std::size_t peer = 0; peer < addresses.size(); ++peer) {
        if ((*channel)->peer() == worker_name(task_, of_run(peer)) && channels_[peer] == nullptr) {
          channels_[peer] = *channel;
          --missing;
          break;
        }
      }
    } else if (link_->is_cancelled()) {
      return cancelled();
    } else if (channel.error().kind != transport::FailureKind::kTimeout || transport::Clock::now() > deadline) {
      return tl::unexpected<Error>(transport::to_error(channel.error()));
    }
  }
  for (const auto& channel : channels_) {
    paths_.push_back(channel == nullptr ? "" : fmt::format("{} ({})", channel->path().name, channel->path().reason));
  }
  return {};
}

Result<void> Worker::prepare_hub(const graph::Program& program) {
  if (task_.replicas == 1) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(Updates updates, find_updates(program));
  HubExchangeOptions hub_options;
  hub_options.hub = task_.hub;
  hub_options.token = task_.hub_token;
  hub_options.job = fmt::format("{}-{}", task_.hub_job, part());
  hub_options.nonce = task_.hub_nonce;
  hub_options.clip_norm = task_.clip_norm;
  hub_options.clip_group = task_.hub_job;
  hub_options.clip_parts = task_.clip_parts;
  hub_options.clip_part = task_.clip_part;
  hub_options.clip_values = {task_.clip_values.begin(), task_.clip_values.end()};
  hub_options.replica = replica();
  hub_options.replicas = task_.replicas;
  hub_options.network = task_.network;
  hub_options.cancelled = [this] { return link_->is_cancelled(); };
  hub_ = std::make_unique<HubExchange>(program, std::move(updates), hub_options);
  return {};
}

Result<void> Worker::prepare() {
  TESSER_ASSIGN_OR_RETURN(graph::Program program, graph::parse_program(programs_.step, "the worker's program"));
  TESSER_RETURN_IF_ERROR(prepare_hub(program));
  TransportExchangeOptions exchange_options;
  exchange_options.worker = part();
  exchange_options.connect_limit = kConnectLimit;
  exchange_options.cancelled = [this] { return link_->is_cancelled(); };
  exchange_ = std::make_unique<TransportExchange>(*device_, channels_, exchange_options);
  ExecutorOptions executor_options;
  executor_options.threads =
      task_.threads > 0 ? task_.threads : std::max(1, usable_processors() / std::max(1, task_.sharing));
  executor_options.check_nan = task_.check_nan;
  executor_options.profile = task_.profile;
  executor_options.trace = task_.traced_steps > 0;
  executor_options.exchange = exchange_.get();
  executor_options.gradients = hub_.get();
  TESSER_ASSIGN_OR_RETURN(executor_, Executor::create(std::move(program), executor_options));
  TESSER_RETURN_IF_ERROR(prepare_evaluation(exchange_options, executor_options));
  programs_ = {};
  std::int64_t needed = hub_ ? hub_->bytes() : 0;
  for (const Executor* const executor : {executor_.get(), forward_.get()}) {
    if (executor != nullptr) {
      needed += executor->memory().predicted_peak_bytes + executor->memory().exchange_bytes;
    }
  }
  TESSER_RETURN_IF_ERROR(check_memory(needed, memory_limit()));
  if (task_.resume.empty()) {
    TESSER_RETURN_IF_ERROR(write_initial_state(*executor_, task_.program));
  } else {
    TESSER_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open_verified(task_.resume));
    TESSER_RETURN_IF_ERROR(write_checkpoint_state(*executor_, task_.program, checkpoint));
    saved_step_ = task_.step;
  }
  if (hub_) {
    TESSER_RETURN_IF_ERROR(hub_->connect(*executor_, task_.step));
    paths_.push_back(hub_->path());
  }
  link_->report_paths(paths_);
  if (task_.traced_steps > 0) {
    trace_.emplace(*executor_, task_.traced_steps);
  }
  step_ = task_.step;
  next_ = task_.next;
  TESSER_RETURN_IF_ERROR(prepare_loader());
  TESSER_RETURN_IF_ERROR(prepare_writer());
  report_memory();
  return {};
}

// Its part of the forward program, which has state of its own besides the step's: what an evaluation reads is brought
// there before.
Result<void> Worker::prepare_evaluation(TransportExchangeOptions exchange_options, ExecutorOptions executor_options) {
  if (task_.evaluation_data.empty()) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(graph::Program program,
                          graph::parse_program(programs_.forward, "the worker's forward program"));
  exchange_options.name = "evaluation ";
  forward_exchange_ = std::make_unique<TransportExchange>(*device_, channels_, exchange_options);
  executor_options.check_nan = false;
  executor_options.profile = false;
  executor_options.trace = false;
  executor_options.exchange = forward_exchange_.get();
  TESSER_ASSIGN_OR_RETURN(forward_, Executor::create(std::move(program), executor_options));
  // Everything the step does not have; copy_state() then brings what is trained.
  TESSER_RETURN_IF_ERROR(write_initial_state(*forward_, task_.program));
  TESSER_ASSIGN_OR_RETURN(evaluation_data_, DataSet::open(task_.evaluation_data, task_.evaluation_batch));
  return {};
}

Result<void> Worker::evaluate_now() {
  if (hub_) {
    TESSER_RETURN_IF_ERROR(hub_->wait_all());  // then the parameters are those after this step
  }
  TESSER_RETURN_IF_ERROR(copy_state(*executor_, *forward_));
  TESSER_ASSIGN_OR_RETURN(const Evaluation evaluation, evaluate(*forward_, *evaluation_data_));
  WorkerEvaluation report;
  report.step = step_;
  for (const auto& [name, result] : evaluation.results) {
    report.names.push_back(name);
    report.results.push_back(result);
  }
  report.batches = evaluation.batches;
  report.samples = evaluation.samples;
  report.left_out = evaluation.left_out;
  report.seconds = evaluation.seconds;
  link_->report_evaluation(std::move(report));
  return {};
}

Result<void> Worker::prepare_loader() {
  batch_ = batch_memory(*executor_, *data_);
  loader_.emplace(*data_, LoaderOptions{task_.seed, task_.shuffle, task_.next,
                                        batch_parts(executor_->program(), *data_), task_.replicas, replica()});
  return {};
}

Result<void> Worker::prepare_writer() {
  const graph::Program& program = executor_->program();
  for (const ShardTask& shard_task : task_.shards) {
    Shard shard{shard_task.file, {}};
    for (const std::string& name : shard_task.values) {
      const graph::ValueId id = program.find(name);
      if (id == graph::kNone) {
        return failed(fmt::format("the coordinator asks for '{}', which this worker does not have", name));
      }
      const graph::Value& value = program.value(id);
      shard.values.push_back(written_values_.size());
      written_values_.push_back({value.name, value.role, value.dtype, value.shape, value.persistent, {}});
    }
    shards_.push_back(std::move(shard));
  }
  writer_.emplace(written_values_, [this](const CheckpointInfo& info, std::span<const TensorView> contents) {
    const auto begin = Clock::now();
    const std::filesystem::path directory = unfinished_checkpoint(task_.checkpoint, info.step);
    std::error_code error;
    std::filesystem::create_directory(directory, error);  // by the first of the workers
    CheckpointWritten written;
    written.step = info.step;
    for (const Shard& shard : shards_) {
      std::vector<NamedTensor> tensors;
      for (const std::size_t value : shard.values) {
        tensors.push_back({written_values_[value].name, contents[value]});
      }
      Result<ShardDescription> description = write_shard(directory / shard.file, tensors);
      if (!description) {
        return Result<CheckpointWritten>(failed(description.error().message));
      }
      written.shards.push_back(std::move(*description));
    }
    written.seconds = seconds_since(begin);
    return Result<CheckpointWritten>(std::move(written));
  });
  return {};
}

void Worker::report_memory() {
  const MemoryReport report = executor_->memory();
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  WorkerMemory memory;
  const std::int64_t exchange_bytes = report.exchange_bytes + (hub_ ? hub_->bytes() : 0);
  memory.predicted_bytes = report.predicted_peak_bytes + exchange_bytes;
  memory.measured_bytes = report.arena_bytes == 0 ? 0 : report.arena_bytes + report.unplanned_bytes + exchange_bytes;
  memory.scratch_bytes = report.scratch_bytes;
  memory.unplanned_allocations = report.unplanned_allocations;
  memory.unplanned_bytes = report.unplanned_bytes;
  memory.copied_gradient_bytes = report.copied_gradient_bytes;
  memory.resident_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  link_->report_memory(memory);
}

Result<void> Worker::take_written(std::optional<Result<CheckpointWritten>> outcome) {
  if (!outcome) {
    return {};
  }
  if (!*outcome) {
    return failed(fmt::format("the checkpoint could not be written: {}", outcome->error().message));
  }
  link_->report_written({(*outcome)->step, (*outcome)->seconds, std::move((*outcome)->shards)});
  return {};
}

// Copies this worker's part of the state and begins to write it.
Result<void> Worker::write_state() {
  TESSER_RETURN_IF_ERROR(take_written(writer_->wait_outcome()));
  if (hub_) {
    TESSER_RETURN_IF_ERROR(hub_->wait_all());
    TESSER_RETURN_IF_ERROR(hub_->fetch_state(*executor_));
  }
  const std::span<const MutableTensorView> staging = writer_->staging();
  for (std::size_t i = 0; i < written_values_.size(); ++i) {
    TESSER_RETURN_IF_ERROR(executor_->read_state(written_values_[i].name, staging[i]));
  }
  if (hub_) {
    hub_->forget_state(*executor_);
  }
  CheckpointInfo info;
  info.step = step_;
  writer_->start(std::move(info));
  saved_step_ = step_;
  return {};
}

Result<void> Worker::step() {
  const auto begin = Clock::now();
  const DataPosition position = loader_->next(batch_);
  if (hub_) {
    TESSER_RETURN_IF_ERROR(hub_->begin_step(step_));
  }
  const Result<StepResult> result = executor_->run(step_, replica_seed(task_.seed, replica()));
  const std::int64_t number = step_ + 1;
  if (!result) {
    return tl::unexpected<Error>(Error{result.error().code, fmt::format("step {} (epoch {}): {}", number,
                                                                        position.epoch + 1, result.error().message)});
  }
  ExchangeReport exchanged = exchange_->take_report();
  if (hub_) {
    const ExchangeReport with_hub = hub_->take_report();
    exchanged.waiting_seconds += with_hub.waiting_seconds;
    exchanged.transfer_seconds += with_hub.transfer_seconds;
    exchanged.sent_bytes += with_hub.sent_bytes;
  }
  WorkerStep report;
  report.step = number;
  report.loss = result->loss;
  report.metrics = result->metrics;
  report.seconds = seconds_since(begin);
  report.waiting_seconds = exchanged.waiting_seconds;
  report.transfer_seconds = exchanged.transfer_seconds;
  report.sent_bytes = exchanged.sent_bytes;
  if (trace_) {
    trace_->add_step(number);
  }
  if (!std::isfinite(result->loss)) {
    TESSER_RETURN_IF_ERROR(take_written(writer_->wait_outcome()));  // the checkpoint before is still a good one
  }
  link_->report_step(std::move(report));
  step_ = number;
  next_ = following(position, *data_, task_.replicas);
  if (!std::isfinite(result->loss)) {
    // The coordinator sees it too and ends the run; state like this must not be saved.
    while (link_->wait_for_permission(std::numeric_limits<std::int64_t>::max() - 1) != Permission::kAbort) {
      std::this_thread::sleep_for(kWaitSlice);
    }
    return cancelled();
  }
  return {};
}

Result<void> Worker::after_step() {
  TESSER_RETURN_IF_ERROR(take_written(writer_->take_outcome()));
  if (forward_ && (next_.batch == 0 || step_ == task_.until_step)) {
    TESSER_RETURN_IF_ERROR(evaluate_now());
  }
  if (!task_.checkpoint.empty() && (step_ - task_.first_step) % task_.every == 0) {
    TESSER_RETURN_IF_ERROR(write_state());
  }
  if (!memory_reported_) {
    memory_reported_ = true;
    report_memory();
  }
  return {};
}

Result<void> Worker::train() {
  if (forward_ && step_ >= task_.until_step) {
    TESSER_RETURN_IF_ERROR(evaluate_now());
  }
  while (true) {
    const Permission permission = link_->wait_for_permission(step_);
    if (permission == Permission::kAbort) {
      return cancelled();
    }
    if (permission == Permission::kEnd) {
      break;
    }
    TESSER_RETURN_IF_ERROR(step());
    TESSER_RETURN_IF_ERROR(after_step());
  }
  if (!task_.checkpoint.empty() && saved_step_ != step_) {
    TESSER_RETURN_IF_ERROR(write_state());
  }
  if (hub_) {
    TESSER_RETURN_IF_ERROR(hub_->wait_all());  // then it has taken this worker's gradients
    TESSER_RETURN_IF_ERROR(hub_->leave());
  }
  TESSER_RETURN_IF_ERROR(take_written(writer_->wait_outcome()));
  if (trace_) {
    TESSER_RETURN_IF_ERROR(trace_->write(task_.trace, options_.worker, task_.trace_begin));
  }
  report_memory();
  std::vector<OperatorTotal> operators;
  for (const OperatorTime& time : executor_->profile()) {
    operators.push_back({time.op, time.calls, time.seconds, time.scratch_bytes});
  }
  link_->end(std::move(operators));
  return {};
}

std::vector<std::int64_t> Worker::lost_peers() const {
  std::vector<std::int64_t> lost;
  for (std::size_t peer = 0; peer < channels_.size(); ++peer) {
    if (channels_[peer] != nullptr && channels_[peer]->failed()) {
      lost.push_back(of_run(peer));
    }
  }
  for (int other = 0; hub_ && hub_->has_failed() && other < task_.replicas; ++other) {
    if (other != replica()) {
      lost.push_back(other * task_.workers + part());
    }
  }
  return lost;
}

Result<void> Worker::work() {
  TESSER_RETURN_IF_ERROR(join());
  TESSER_RETURN_IF_ERROR(check_inputs());
  TESSER_RETURN_IF_ERROR(prepare());
  return train();
}

Result<void> Worker::run() {
  TESSER_RETURN_IF_ERROR(take_task());
  const Result<void> outcome = work();
  if (!outcome && link_ && !link_->is_cancelled()) {
    link_->fail({outcome.error().message, exit_code(outcome.error()), lost_peers()});
  }
  if (!outcome && hub_) {
    hub_->abandon();
  }
  return outcome;
}

}  // namespace

Result<void> run_worker(const WorkerOptions& options) {
  Worker worker(options);
  return worker.run();
}

}  // namespace tesser::runtime
