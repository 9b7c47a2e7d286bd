#include "hub/job.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hub/topology.h"

namespace tesser::hub {
namespace {

using transport::Strided;

// For handshakes and what follows them at once.
constexpr std::chrono::seconds kPatience{20};
// How often the control thread looks for losses.
constexpr std::chrono::milliseconds kLook{20};

template <typename T>
Result<T> as_result(transport::Outcome<T> outcome) {
  if (!outcome) {
    return tl::unexpected<Error>(transport::to_error(outcome.error()));
  }
  return std::move(*outcome);
}

Result<void> as_result(const transport::Outcome<void>& outcome) {
  return outcome ? Result<void>() : tl::unexpected<Error>(transport::to_error(outcome.error()));
}

// The same time whatever the texts, as far as their lengths are equal.
bool are_equal(const std::string& left, const std::string& right) {
  unsigned char difference = left.size() == right.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    difference |= static_cast<unsigned char>(left[i] ^ right[i]);
  }
  return difference == 0;
}

std::vector<int> as_cores(const std::vector<std::int64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

Result<ChunkMap> map_of(const JobSettings& settings, const std::vector<std::int64_t>& cores) {
  constexpr std::int64_t kMostCores = 1024;
  for (const std::int64_t each : cores) {
    if (each < 1 || each > kMostCores) {
      return invalid_input(fmt::format("a hub has 1 to {} cores, not {}", kMostCores, each));
    }
  }
  if (cores.empty() || cores.size() > static_cast<std::size_t>(kMostCores)) {
    return invalid_input("a job needs at least one hub");
  }
  return map_chunks(settings, as_cores(cores));
}

}  // namespace

Result<std::uint64_t> Job::memory_bytes(const JobSettings& settings, const std::vector<std::int64_t>& cores) {
  TESSER_ASSIGN_OR_RETURN(const ChunkMap map, map_of(settings, cores));
  return JobMemory(map, settings).bytes;
}

Result<std::unique_ptr<Job>> Job::open(const JobPlace& place, const JoinRequest& first) {
  TESSER_RETURN_IF_ERROR(check(first.settings));
  if (first.hub < 0 || first.hub >= static_cast<std::int64_t>(first.cores.size()) ||
      first.cores[static_cast<std::size_t>(first.hub)] != static_cast<std::int64_t>(place.processors.size())) {
    return invalid_input(
        fmt::format("the request is for hub {} of {} with other cores than the {} of this one; give every worker the "
                    "same hubs in the same order",
                    first.hub, first.cores.size(), place.processors.size()));
  }
  if (first.rank >= first.settings.replicas ||
      first.urls.size() != static_cast<std::size_t>(first.settings.racks > 1 ? first.settings.racks : 0)) {
    return invalid_input(fmt::format("rank {} of {} replicas on {} racks names the hubs of {} racks", first.rank,
                                     first.settings.replicas, first.settings.racks, first.urls.size()));
  }
  TESSER_ASSIGN_OR_RETURN(ChunkMap map, map_of(first.settings, first.cores));
  std::unique_ptr<Job> job(new Job(place, first, std::move(map)));
  TESSER_RETURN_IF_ERROR(job->prepare(first));
  return job;
}

Job::Job(JobPlace place, const JoinRequest& first, ChunkMap map)
    : place_(std::move(place)),
      name_(first.job),
      nonce_(first.nonce),
      context_(first.settings, std::move(map), static_cast<std::uint32_t>(first.hub),
               first.rank / (first.settings.replicas / first.settings.racks)),
      cores_of_hubs_(first.cores),
      workers_(static_cast<std::size_t>(context_.workers)) {}

Result<void> Job::prepare(const JoinRequest& first) {
  transport::DeviceOptions options;
  options.name = fmt::format("hub {}", first.hub);
  options.listen = place_.host + ":0";
  options.run = run_of(name_, nonce_);
  options.paths = place_.through_network ? transport::Paths::kNetworkOnly : transport::Paths::kAny;
  options.signal_bytes = signal_bytes(context_.map.loads[context_.hub],
                                      workers_.size() + static_cast<std::size_t>(context_.settings.racks));
  TESSER_ASSIGN_OR_RETURN(device_, as_result(transport::Device::open(options)));
  context_.device = device_.get();
  const JobMemory memory(context_.map, context_.settings);
  TESSER_ASSIGN_OR_RETURN(context_.region,
                          as_result(device_->allocate(memory.bytes, {.name = "weights of job " + name_})));
  context_.weights = reinterpret_cast<float*>(context_.region->data());
  for (int tensor = 0; tensor < memory.state_tensors; ++tensor) {
    context_.state[static_cast<std::size_t>(tensor)] =
        reinterpret_cast<float*>(context_.region->data() + memory.state(tensor));
  }
  context_.updates = reinterpret_cast<std::int64_t*>(context_.region->data() + memory.updates());
  context_.rate_limit = place_.rate_limit;
  context_.lost = [this](const WorkerEnd& worker, const std::string& reason) {
    const std::lock_guard lock(loss_mutex_);
    losses_.push_back({&worker, worker.rank, reason});
  };
  context_.broken = [this](const std::string& reason) {
    const std::lock_guard lock(loss_mutex_);
    broken_ = broken_.empty() ? reason : broken_;
  };
  const auto& loads = context_.map.loads[context_.hub];
  if (context_.settings.clip_norm > 0) {
    const auto busy = std::count_if(loads.begin(), loads.end(), [](const auto& load) { return load.chunks != 0; });
    context_.clipping = std::make_unique<Clipping>(context_.map.chunks.size(), static_cast<int>(busy));
    const auto publish = [this](double total) {
      context_.clipping->publish(total);
      device_->wake();
    };
    context_.combine = publish;
    if (cores_of_hubs_.size() > 1) {
      context_.norms = std::make_unique<NormExchange>(context_.hub, cores_of_hubs_.size(), publish, context_.broken);
      context_.combine = [this](double squares) { context_.norms->give(squares); };
      // A hub without chunks has nobody to say that it is done.
      if (busy == 0) {
        return invalid_input(fmt::format("job {} has more hubs than chunks", name_));
      }
    }
  }
  TESSER_RETURN_IF_ERROR(connect_first_hub(first));
  if (context_.settings.racks > 1) {
    const std::uint64_t bytes = memory.tensor_bytes;
    TESSER_ASSIGN_OR_RETURN(context_.sums, as_result(device_->allocate(bytes, {.name = "sums of job " + name_})));
    TESSER_ASSIGN_OR_RETURN(context_.rack_inbox,
                            as_result(device_->allocate(bytes * static_cast<std::uint64_t>(context_.settings.racks),
                                                        {.name = "other racks' sums of job " + name_})));
    racks_ =
        std::make_unique<Racks>(RackPlace{name_, nonce_, place_.token, context_.rack, first.hub, first.urls, loads},
                                *device_, context_.region, context_.rack_inbox);
  }
  for (std::uint32_t core = 0; core < loads.size(); ++core) {
    cores_.push_back(std::make_unique<JobCore>(context_, core));
  }
  for (std::uint32_t core = 0; core < loads.size(); ++core) {
    core_threads_.emplace_back([this, core] {
      pin_this_thread(place_.processors[core]);
      cores_[core]->run();
    });
  }
  control_thread_ = std::thread([this] { run_control(); });
  return {};
}

Result<void> Job::connect_first_hub(const JoinRequest& first) {
  if (first.hub == 0 || (!context_.settings.one_machine && context_.norms == nullptr)) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(auto channel, as_result(device_->connect(first.home_address, transport::in(kPatience))));
  hub_channels_.push_back(channel);
  if (context_.norms != nullptr) {
    TESSER_RETURN_IF_ERROR(context_.norms->add(0, channel));
  }
  if (!context_.settings.one_machine) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(auto home, as_result(channel->import_region(first.home, transport::in(kPatience))));
  if (home->mapped() == nullptr || home->bytes() != context_.region->bytes()) {
    return invalid_input(fmt::format("job {} says that all of it is on one machine, but hub {} reaches hub 0 by {}: {}",
                                     name_, first.hub, channel->path().name, channel->path().reason));
  }
  home_ = std::move(home);
  context_.weights = reinterpret_cast<float*>(home_->mapped());
  return {};
}

Job::~Job() {
  stops_.store(true);
  if (control_thread_.joinable()) {
    control_thread_.join();
  }
  for (const auto& core : cores_) {
    core->stop();
  }
  for (std::thread& thread : core_threads_) {
    thread.join();
  }
}

bool Job::has_nonce(const std::string& nonce) const { return are_equal(nonce, nonce_); }

void Job::log(const std::string& line) const { place_.log(fmt::format("job {}: {}", name_, line)); }

std::string Job::who(std::int64_t rank) const {
  const JoinRequest& request = workers_[static_cast<std::size_t>(rank - context_.first_rank)].request;
  return fmt::format("rank {} ({}, process {})", rank, request.host, request.process);
}

Result<Job::Worker*> Job::worker_of(std::int64_t rank) {
  if (rank < context_.first_rank || rank >= context_.first_rank + context_.workers) {
    ++refused_;
    return invalid_input(fmt::format("job {} has ranks {} to {} at this hub, not {}", name_, context_.first_rank,
                                     context_.first_rank + context_.workers - 1, rank));
  }
  if (state_ == State::kFailed) {
    return failed(reason_);
  }
  return &worker_at(rank);
}

Result<JoinAnswer> Job::join(const JoinRequest& request) {
  const std::lock_guard lock(mutex_);
  TESSER_ASSIGN_OR_RETURN(Worker * found, worker_of(request.rank));
  Worker& worker = *found;
  if (worker.state != WorkerState::kAbsent && worker.state != WorkerState::kLost) {
    ++refused_;
    log(fmt::format("refused a second worker of rank {} from {}", request.rank, request.host));
    return invalid_input(fmt::format("job {} already has {}", name_, who(request.rank)));
  }
  if (worker.state == WorkerState::kLost && context_.settings.on_loss != OnLoss::kWait) {
    return invalid_input(fmt::format("job {} goes on without its lost rank {}", name_, request.rank));
  }
  if (const std::string differs = difference(request.settings, context_.settings);
      !differs.empty() || request.cores != cores_of_hubs_ || request.hub != context_.hub) {
    ++refused_;
    return invalid_input(fmt::format("rank {} asks for another job than the others of job {}: {}", request.rank, name_,
                                     differs.empty() ? "other hubs" : differs));
  }
  if (request.memory.bytes != context_.worker_memory.bytes) {
    ++refused_;
    return invalid_input(fmt::format("rank {} shows {} bytes of memory where {} are needed", request.rank,
                                     request.memory.bytes, context_.worker_memory.bytes));
  }
  const bool is_return = worker.state == WorkerState::kLost;
  const std::int64_t commits = worker.commits;
  worker = Worker{};
  worker.state = WorkerState::kJoined;
  worker.is_return = is_return;
  worker.commits = commits;
  worker.request = request;
  log(fmt::format("{} {}", who(request.rank), is_return ? "is back" : "joins"));
  return JoinAnswer{device_->address(), context_.region->handle(), is_return, commits};
}

void Job::run_control() {
  while (!stops_.load()) {
    if (auto channel = device_->accept(transport::in(kLook))) {
      take_channel(std::move(*channel));
    }
    look_for_racks();
    take_losses();
  }
}

void Job::look_for_racks() {
  if (racks_ == nullptr) {
    return;
  }
  Result<void> outcome;
  {
    const std::lock_guard lock(racks_mutex_);
    outcome = racks_->are_linked() ? Result<void>() : racks_->look();
  }
  if (!outcome) {
    const std::lock_guard lock(mutex_);
    fail(outcome.error().message);
  }
}

Result<RackAnswer> Job::introduce(const RackRequest& request) {
  if (racks_ == nullptr) {
    return invalid_input(fmt::format("job {} has one rack", name_));
  }
  const std::lock_guard lock(racks_mutex_);
  return racks_->introduce(request);
}

void Job::take_rack_weights() {
  const std::lock_guard lock(mutex_);
  has_rack_weights_ = true;
}

Result<void> Job::fetch_state() {
  if (racks_ == nullptr) {
    return {};
  }
  const std::lock_guard lock(racks_mutex_);
  return racks_->fetch(context_.map, JobMemory(context_.map, context_.settings));
}

void Job::take_channel(std::shared_ptr<transport::Channel> channel) {
  if (racks_ != nullptr) {
    const std::lock_guard lock(racks_mutex_);
    const auto taken = racks_->take_channel(channel);
    if (!taken) {
      log("refused a hub of another rack: " + taken.error().message);
    }
    if (!taken || *taken) {
      return;
    }
  }
  Worker* worker = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (Worker& each : workers_) {
      if (each.state == WorkerState::kJoined && each.request.memory.device == channel->peer_nonce()) {
        worker = &each;
      }
    }
    if (worker == nullptr) {
      if (take_hub(channel)) {
        return;
      }
      ++refused_;
      log(fmt::format("refused a connection of '{}', which has not joined", channel->peer()));
      channel->close();
      return;
    }
  }
  // The worker stays as it is until this is done: nobody else changes one that has joined.
  const Result<void> outcome = connect_worker(*worker, channel);
  const std::lock_guard lock(mutex_);
  if (!outcome) {
    log(fmt::format("refused {}: {}", who(worker->request.rank), outcome.error().message));
    ++refused_;
    channel->close();
    worker->state = worker->is_return ? WorkerState::kLost : WorkerState::kAbsent;
    worker->end.reset();
    worker->links.clear();
    return;
  }
  worker->state = WorkerState::kConnected;
}

// Another hub of the job, which the device has let in because it knows the nonce: "hub 2".
bool Job::take_hub(const std::shared_ptr<transport::Channel>& channel) {
  for (std::size_t hub = 1; context_.hub == 0 && hub < cores_of_hubs_.size(); ++hub) {
    if (channel->peer() == fmt::format("hub {}", hub)) {
      hub_channels_.push_back(channel);
      if (context_.norms != nullptr) {
        if (const auto added = context_.norms->add(static_cast<std::uint32_t>(hub), channel); !added) {
          fail(added.error().message);
        }
      }
      return true;
    }
  }
  return false;
}

Result<void> Job::connect_worker(Worker& worker, const std::shared_ptr<transport::Channel>& channel) {
  auto end = std::make_shared<WorkerEnd>();
  end->rank = worker.request.rank;
  end->channel = channel;
  TESSER_ASSIGN_OR_RETURN(end->memory,
                          as_result(channel->import_region(worker.request.memory, transport::in(kPatience))));
  if (end->memory->mapped() == nullptr) {
    TESSER_ASSIGN_OR_RETURN(
        end->inbox, as_result(device_->allocate(context_.inbox.bytes,
                                                {.name = fmt::format("gradients of rank {}", worker.request.rank)})));
  }
  for (std::uint32_t core = 0; core < cores_.size(); ++core) {
    const ChunkMap::Load& load = context_.map.loads[context_.hub][core];
    TESSER_ASSIGN_OR_RETURN(auto pushes, as_result(transport::NotificationReader::open(
                                             channel, push_queue(static_cast<int>(core)), push_capacity(load))));
    TESSER_ASSIGN_OR_RETURN(
        auto pulls, as_result(transport::NotificationWriter::open(channel, pull_queue(static_cast<int>(core)))));
    worker.links.push_back({end, std::move(pushes), std::move(pulls)});
  }
  worker.end = std::move(end);
  return {};
}

Result<ConnectedAnswer> Job::connected(const WorkerRequest& request) {
  const std::lock_guard lock(mutex_);
  TESSER_ASSIGN_OR_RETURN(Worker * worker, worker_of(request.rank));
  if (worker->state == WorkerState::kAbsent || worker->state == WorkerState::kLost) {
    return failed(fmt::format("job {} has not taken in rank {}; its hub's log says why", name_, request.rank));
  }
  ConnectedAnswer answer;
  answer.ready = worker->state != WorkerState::kJoined;
  answer.has_inbox = answer.ready && worker->end->inbox != nullptr;
  if (answer.has_inbox) {
    answer.inbox = worker->end->inbox->handle();
  }
  return answer;
}

Result<StartAnswer> Job::start(const WorkerRequest& request) {
  const std::lock_guard lock(mutex_);
  TESSER_ASSIGN_OR_RETURN(Worker * worker, worker_of(request.rank));
  if (worker->state == WorkerState::kConnected) {
    if (home_ != nullptr && !request.shares_weights) {
      return invalid_input(
          fmt::format("job {} says that all of it is on one machine, but {} is not", name_, who(request.rank)));
    }
    worker->state = WorkerState::kStarted;
    worker->shares_weights = request.shares_weights;
    if (worker->is_return) {
      if (request.commits < worker->commits || request.commits > worker->commits + 1) {
        return invalid_input(fmt::format("rank {} says it had committed {} steps; {} are known here", request.rank,
                                         request.commits, worker->commits));
      }
      for (const auto& core : cores_) {
        core->settle(request.rank, request.commits, false);
      }
      worker->commits = request.commits;
    }
  }
  if (state_ == State::kGathering && missing().empty()) {
    if (const Result<void> begun = begin(); !begun) {
      fail(begun.error().message);
      return tl::unexpected<Error>(begun.error());
    }
  }
  if (worker->state == WorkerState::kStarted && worker->is_return) {
    // The step that it had committed must be done everywhere before its new memory takes the old one's place.
    const bool settled = std::all_of(cores_.begin(), cores_.end(),
                                     [&](const auto& core) { return core->settled_step() >= worker->commits; });
    if (settled) {
      TESSER_RETURN_IF_ERROR(give_all_weights(*worker));
      TESSER_RETURN_IF_ERROR(attach(*worker));
    }
  }
  StartAnswer answer;
  answer.ready = worker->state == WorkerState::kRunning;
  answer.step = worker->commits;
  answer.waiting_for = missing();
  return answer;
}

std::string Job::missing() const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].state < WorkerState::kStarted) {
      ranks.push_back(rank + static_cast<std::size_t>(context_.first_rank));
    }
  }
  if (!ranks.empty()) {
    return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  }
  if (context_.norms != nullptr && !context_.norms->is_linked()) {
    return "other hubs of the job";
  }
  if (racks_ != nullptr && state_ == State::kGathering) {
    const std::lock_guard lock(racks_mutex_);
    if (!racks_->are_linked()) {
      return racks_->missing();
    }
    if (context_.rack != 0 && !has_rack_weights_) {
      return "rack 0's weights";
    }
  }
  return "";
}

Result<void> Job::begin() {
  if (context_.norms != nullptr) {
    TESSER_RETURN_IF_ERROR(context_.norms->finish(*device_, transport::in(kPatience)));
  }
  if (racks_ != nullptr) {
    const std::lock_guard lock(racks_mutex_);
    for (std::size_t core = 0; core < cores_.size(); ++core) {
      for (RackLink& link : racks_->take_links(core)) {
        cores_[core]->attach(std::move(link));
      }
    }
    if (context_.rack == 0) {
      TESSER_RETURN_IF_ERROR(racks_->give_memory());
    }
  }
  for (Worker& worker : workers_) {
    TESSER_RETURN_IF_ERROR(give_all_weights(worker));
  }
  for (Worker& worker : workers_) {
    TESSER_RETURN_IF_ERROR(attach(worker));
  }
  state_ = State::kRunning;
  log(fmt::format("runs with {} workers", workers_.size()));
  return {};
}

Result<void> Job::give_all_weights(Worker& worker) {
  worker.end->shares_weights = worker.shares_weights;
  if (worker.shares_weights) {
    return {};
  }
  transport::Completion sent;
  for (const Chunk& chunk : context_.map.chunks) {
    if (chunk.hub == context_.hub) {
      const Strided place = Strided::contiguous(static_cast<std::uint64_t>(chunk.begin) * sizeof(float),
                                                static_cast<std::uint64_t>(chunk.elements) * sizeof(float));
      TESSER_RETURN_IF_ERROR(
          as_result(worker.end->channel->write(*context_.region, place, *worker.end->memory, place, sent)));
    }
  }
  TESSER_RETURN_IF_ERROR(as_result(worker.end->channel->flush(sent)));
  if (!device_->wait([&] { return sent.done(); }, transport::in(kPatience * 6))) {
    return failed(fmt::format("the weights did not reach {} in time", who(worker.request.rank)));
  }
  return as_result(sent.outcome());
}

Result<void> Job::attach(Worker& worker) {
  for (std::size_t core = 0; core < cores_.size(); ++core) {
    Link& link = worker.links[core];
    Result<void> outcome;
    const auto connected = [&] {
      const auto pulls = link.pulls.connected();
      const auto pushes = link.pushes.connected();
      if (!pulls || !pushes) {
        outcome = failed((pulls ? pushes : pulls).error().message);
        return true;
      }
      return *pulls && *pushes;
    };
    if (!device_->wait(connected, transport::in(kPatience))) {
      return failed(fmt::format("{} has not opened its queues", who(worker.request.rank)));
    }
    TESSER_RETURN_IF_ERROR(outcome);
    cores_[core]->attach(std::move(link));
  }
  worker.links.clear();
  worker.state = WorkerState::kRunning;
  return {};
}

Result<void> Job::leave(const WorkerRequest& request) {
  const std::lock_guard lock(mutex_);
  TESSER_ASSIGN_OR_RETURN(Worker * worker, worker_of(request.rank));
  if (worker->state == WorkerState::kRunning) {
    for (const auto& core : cores_) {
      core->leave(request.rank);
    }
  }
  worker->state = WorkerState::kLeft;
  log(fmt::format("{} leaves", who(request.rank)));
  if (std::all_of(workers_.begin(), workers_.end(), [](const Worker& each) {
        return each.state == WorkerState::kLeft || each.state == WorkerState::kLost;
      })) {
    state_ = State::kEnded;
    log("ends");
  }
  return {};
}

void Job::take_losses() {
  std::deque<Loss> losses;
  std::string broken;
  {
    const std::lock_guard lock(loss_mutex_);
    losses.swap(losses_);
    broken.swap(broken_);
  }
  const std::lock_guard lock(mutex_);
  if (!broken.empty()) {
    fail(broken);
  }
  for (const Loss& loss : losses) {
    // Every core reports it; the worker may be back meanwhile.
    if (worker_at(loss.rank).end.get() == loss.worker) {
      lose(loss.rank, loss.reason);
    }
  }
  // Who is lost before the job runs, or between it and its cores.
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    const Worker& worker = workers_[rank];
    if (worker.end != nullptr && worker.end->channel->failed() && worker.state >= WorkerState::kConnected &&
        worker.state <= WorkerState::kStarted) {
      lose(static_cast<std::int64_t>(rank) + context_.first_rank, worker.end->channel->failure()->message);
    }
  }
}

void Job::lose(std::int64_t rank, const std::string& reason) {
  Worker& worker = worker_at(rank);
  if (state_ == State::kFailed || worker.state == WorkerState::kLost || worker.state == WorkerState::kLeft) {
    return;
  }
  const std::string message = fmt::format("{} is lost: {}", who(rank), reason);
  log(message);
  if (worker.state != WorkerState::kRunning) {
    worker.state = worker.is_return ? WorkerState::kLost : WorkerState::kAbsent;
    worker.end.reset();
    worker.links.clear();
    return;
  }
  if (context_.settings.on_loss == OnLoss::kStop) {
    return fail(message);
  }
  worker.state = WorkerState::kLost;
  worker.end->channel->close();
  for (const auto& core : cores_) {
    worker.commits = std::max(worker.commits, core->detach(rank));
  }
  if (context_.settings.on_loss == OnLoss::kContinue) {
    for (const auto& core : cores_) {
      core->settle(rank, worker.commits, true);
    }
    const bool any = std::any_of(workers_.begin(), workers_.end(),
                                 [](const Worker& each) { return each.state == WorkerState::kRunning; });
    if (!any) {
      fail("all workers are lost; the last: " + message);
    }
  }
}

void Job::fail(const std::string& reason) {
  if (state_ == State::kFailed || state_ == State::kEnded) {
    return;
  }
  state_ = State::kFailed;
  reason_ = reason;
  log("fails: " + reason);
  for (const Worker& worker : workers_) {
    if (worker.end != nullptr) {
      worker.end->channel->close();
    }
  }
}

JobStatus Job::status() const {
  constexpr const char* kNames[] = {"gathering", "running", "failed", "ended"};
  const std::lock_guard lock(mutex_);
  return {kNames[static_cast<int>(state_)], reason_};
}

bool Job::is_over() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kFailed || state_ == State::kEnded;
}

JobFigures Job::figures() const {
  JobFigures figures;
  figures.job = name_;
  figures.state = status().state;
  const std::lock_guard lock(mutex_);
  figures.memory_bytes = context_.region->bytes();
  for (const Worker& worker : workers_) {
    figures.workers += worker.state >= WorkerState::kConnected && worker.state <= WorkerState::kRunning ? 1 : 0;
    if (worker.end != nullptr && worker.end->inbox != nullptr) {
      figures.memory_bytes += worker.end->inbox->bytes();
    }
  }
  for (const auto& core : cores_) {
    figures.updates += core->counters().updates.load(std::memory_order_relaxed);
    figures.gradient_bytes += core->counters().gradient_bytes.load(std::memory_order_relaxed);
    figures.rack_bytes += core->counters().rack_bytes.load(std::memory_order_relaxed);
    figures.weight_bytes += core->counters().weight_bytes.load(std::memory_order_relaxed);
  }
  figures.refused = refused_;
  return figures;
}

std::string Job::mapping() const { return print(context_.map); }

}  // namespace tesser::hub
