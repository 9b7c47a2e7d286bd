#include "hub/job.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "control/control_http.h"
#include "hub/huge_pages.h"
#include "hub/topology.h"

namespace tesser::hub {
namespace {

// For handshakes and what follows them at once.
constexpr std::chrono::seconds kPatience{20};
// How often the control thread looks for losses.
constexpr std::chrono::milliseconds kLook{20};

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
  std::int64_t threads = static_cast<std::int64_t>(context_.map.loads[context_.hub].size());
  if (context_.settings.one_machine) {
    threads = std::accumulate(cores_of_hubs_.begin(), cores_of_hubs_.end(), std::int64_t{0});
  }
  // Where one worker is here, the others of the hub's rack are taken to be as well.
  threads += first.host == host_name() ? context_.workers : 0;
  context_.has_spare_processors = !place_.has_other_jobs && has_processors_for(threads);
  transport::DeviceOptions options;
  if (!context_.has_spare_processors && !place_.through_network) {
    options.spin = std::chrono::microseconds(0);
  }
  options.name = fmt::format("hub {}", first.hub);
  options.listen = place_.host + ":0";
  options.run = run_of(name_, nonce_);
  options.ucx_devices = place_.adapters;
  options.paths = place_.through_network ? transport::Paths::kNetworkOnly : transport::Paths::kAny;
  options.signal_bytes = signal_bytes(context_.map.loads[context_.hub],
                                      workers_.size() + static_cast<std::size_t>(context_.settings.racks));
  TESSER_ASSIGN_OR_RETURN(device_, as_result(transport::Device::open(options)));
  context_.device = device_.get();
  const JobMemory memory(context_.map, context_.settings);
  TESSER_ASSIGN_OR_RETURN(context_.region,
                          as_result(device_->allocate(memory.bytes, {.name = "weights of job " + name_,
                                                                     .huge_pages = pages_for(place_.huge_pages)})));
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
  if (place_.norm_group != nullptr) {
    if (cores_of_hubs_.size() > 1) {
      return invalid_input(fmt::format("job {} clips by one norm with other jobs, and so has one hub", name_));
    }
    const auto number = static_cast<std::size_t>(context_.settings.norm_job);
    TESSER_RETURN_IF_ERROR(place_.norm_group->join(
        number, static_cast<std::size_t>(context_.settings.norm_jobs),
        [this](double total) {
          context_.clipping->publish(total);
          device_->wake();
        },
        context_.broken));
    is_in_norm_group_ = true;
    context_.combine = [this, number](double squares) { place_.norm_group->give(number, squares); };
  }
  TESSER_RETURN_IF_ERROR(connect_first_hub(first));
  if (context_.settings.racks > 1) {
    const std::uint64_t bytes = memory.tensor_bytes;
    TESSER_ASSIGN_OR_RETURN(context_.sums, as_result(device_->allocate(bytes, {.name = "sums of job " + name_})));
    TESSER_ASSIGN_OR_RETURN(context_.rack_inbox,
                            as_result(device_->allocate(bytes * static_cast<std::uint64_t>(context_.settings.racks),
                                                        {.name = "other racks' sums of job " + name_})));
    racks_ = std::make_unique<Racks>(
        RackPlace{name_, nonce_, place_.token, context_.rack, first.hub, first.urls, loads, place_.check_hub}, *device_,
        context_.region, context_.rack_inbox);
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
  end_threads();
  leave_norm_group();
}

void Job::end_threads() {
  // Whoever waits for a core to do something holds this. Nobody begins to once the job is over.
  { const std::lock_guard lock(mutex_); }
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
  core_threads_.clear();
}

void Job::leave_norm_group() {
  if (std::exchange(is_in_norm_group_, false)) {
    place_.norm_group->leave(static_cast<std::size_t>(context_.settings.norm_job));
  }
}

bool Job::has_nonce(const std::string& nonce) const { return control::is_same_secret(nonce, nonce_); }

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

void Job::run_control() {
  while (!stops_.load()) {
    if (auto channel = device_->accept(transport::in(kLook))) {
      take_channel(std::move(*channel));
    }
    look_for_racks();
    take_losses();
    look_whether_anybody_is_there();
  }
}

void Job::look_whether_anybody_is_there() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kGathering) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (std::any_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.end != nullptr; })) {
    alone_since_ = now;
  } else if (now - alone_since_ > place_.patience) {
    fail(fmt::format("no worker has connected for {} s", place_.patience.count() / 1000));
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

void Job::fail(const std::string& reason) {
  if (state_ == State::kFailed || state_ == State::kEnded) {
    return;
  }
  state_ = State::kFailed;
  reason_ = reason;
  log("fails: " + reason);
  leave_norm_group();
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
