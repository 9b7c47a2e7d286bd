// A job's workers: how they come, start, leave and are lost. The job itself is in job.cc.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hub/huge_pages.h"
#include "hub/job.h"

namespace tesser::hub {
namespace {

using transport::Strided;

// For handshakes and what follows them at once.
constexpr std::chrono::seconds kPatience{20};
// For a whole model to reach a worker.
constexpr std::chrono::seconds kModelPatience{120};

}  // namespace

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
        end->inbox,
        as_result(device_->allocate(context_.inbox.bytes,
                                    {.name = fmt::format("gradients of rank {}", worker.request.rank),
                                     .huge_pages = pages_for_gradients(place_.huge_pages, context_.settings)})));
  }
  for (std::uint32_t core = 0; core < cores_.size(); ++core) {
    const ChunkMap::Load& load = context_.map.loads[context_.hub][core];
    TESSER_ASSIGN_OR_RETURN(auto queues, QueuePair::open(channel, push_queue(static_cast<int>(core)),
                                                         pull_queue(static_cast<int>(core)), push_capacity(load)));
    queues.sends.wake_on_request();
    worker.links.push_back({end, std::move(queues)});
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
  if (!device_->wait([&] { return sent.done(); }, transport::in(kModelPatience))) {
    return failed(fmt::format("the weights did not reach {} in time", who(worker.request.rank)));
  }
  return as_result(sent.outcome());
}

Result<void> Job::attach(Worker& worker) {
  for (std::size_t core = 0; core < cores_.size(); ++core) {
    Link& link = worker.links[core];
    TESSER_RETURN_IF_ERROR(link.queues.wait_until_open(*device_, transport::in(kPatience), who(worker.request.rank)));
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
    leave_norm_group();
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

}  // namespace tesser::hub
