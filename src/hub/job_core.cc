#include "hub/job_core.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace tesser::hub {
namespace {

// How often the ends of channels are looked for while nothing arrives.
constexpr std::chrono::milliseconds kLook{20};
// Notifications taken from one worker before the next has its turn.
constexpr int kTurn = 256;

WireElement wire_element(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return WireElement::kBFloat16;
    case DType::kFloat16:
      return WireElement::kFloat16;
    default:
      return WireElement::kFloat32;
  }
}

}  // namespace

JobCore::JobCore(JobContext& context, std::uint32_t core)
    : context_(context),
      core_(core),
      element_(wire_element(context.settings.wire)),
      merge_begin_(context.map.chunks.size()),
      states_(context.map.chunks.size()),
      peers_(static_cast<std::size_t>(context.workers)),
      rack_links_(static_cast<std::size_t>(context.settings.racks)) {
  for (std::uint32_t chunk = 0; chunk < context.map.chunks.size(); ++chunk) {
    const Chunk& each = context.map.chunks[chunk];
    own_begin_.resize(each.key + 1, own_.size());
    if (each.hub == context.hub && each.core == core) {
      own_.push_back(chunk);
      merge_begin_[chunk] = merge_elements_;
      merge_elements_ += each.elements;
      if (row_elements(chunk) != 0) {
        row_sum_.resize(std::max(row_sum_.size(), static_cast<std::size_t>(each.elements)));
      }
    }
  }
  own_begin_.resize(context.map.key_begin.size() + 1, own_.size());
  done_of_.resize(context.map.key_begin.size());
  for (std::int64_t rank = 0; rank < context.workers; ++rank) {
    required_ |= bit(rank);
  }
  for (auto& numbers : numbers_) {
    numbers.resize(context.settings.groups.size());
  }
  sources_.reserve(peers_.size());
}

void JobCore::run() {
  while (!stops_.load(std::memory_order_acquire)) {
    if (has_commands_.load(std::memory_order_acquire)) {
      run_commands();
    }
    const bool arrived = take_arrivals();
    const bool worked = work();
    if (unwoken_) {
      wake_workers();
    }
    if (arrived || worked || merge_ahead()) {
      continue;
    }
    context_.device->wait(
        [this] {
          return stops_.load(std::memory_order_relaxed) || has_commands_.load(std::memory_order_relaxed) ||
                 (summed_ == own_.size() && summed_ != 0 && context_.clipping->is_known(states_[own_.front()].step)) ||
                 (core_ == 0 && context_.norms != nullptr && context_.norms->has_news()) ||
                 std::any_of(rack_links_.begin(), rack_links_.end(),
                             [](const auto& link) { return link && link->queues.arrivals.ready(); }) ||
                 std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
                   return peer.link && !peer.is_lost && peer.link->queues.arrivals.ready();
                 });
        },
        transport::in(kLook));
    for (auto& link : rack_links_) {
      if (link && link->end->channel->failed()) {
        take_from_rack(*link);
      }
    }
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      // The end of a channel shows only when asked for.
      if (peers_[rank].link && !peers_[rank].is_lost && peers_[rank].link->worker->channel->failed()) {
        take_arrivals_of(static_cast<std::int64_t>(rank));
      }
    }
  }
  run_commands();
}

void JobCore::stop() {
  stops_.store(true, std::memory_order_release);
  context_.device->wake();
}

template <typename Function>
void JobCore::command(Function function) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    commands_.emplace_back([&] {
      function();
      const std::lock_guard done_lock(mutex);
      done = true;
      changed.notify_one();
    });
    has_commands_.store(true, std::memory_order_release);
  }
  context_.device->wake();
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

void JobCore::run_commands() {
  std::vector<std::function<void()>> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
    has_commands_.store(false, std::memory_order_relaxed);
  }
  for (const auto& each : commands) {
    each();
  }
}

void JobCore::attach(Link link) {
  command([&] {
    Peer& peer = peers_[static_cast<std::size_t>(link.worker->rank - context_.first_rank)];
    peer.link.emplace(std::move(link));
    peer.is_lost = false;
  });
}

void JobCore::attach(RackLink link) {
  command([&] { rack_links_[static_cast<std::size_t>(link.end->rack)].emplace(std::move(link)); });
}

std::int64_t JobCore::detach(std::int64_t global_rank) {
  const std::int64_t rank = global_rank - context_.first_rank;
  std::int64_t commits = 0;
  command([&] {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    while (peer.link && !peer.is_lost && take_arrivals_of(rank)) {
    }
    peer.is_lost = true;
    commits = peer.commits;
  });
  return commits;
}

void JobCore::settle(std::int64_t global_rank, std::int64_t commits, bool without) {
  const std::int64_t rank = global_rank - context_.first_rank;
  command([&] {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    // Where this core has not heard of a commit that another has, all gradients of that step had arrived here too.
    peer.commits = commits;
    if (without) {
      required_ &= ~bit(rank);
    }
    for (const std::uint32_t chunk : own_) {
      ChunkState& state = states_[chunk];
      if (state.step >= commits && (state.given & bit(rank)) != 0) {
        state.given &= ~bit(rank);
        state.none &= ~bit(rank);
        state.merged = 0;
        if (state.is_summed) {
          state.is_summed = false;
          --summed_;
        }
      }
    }
    update_committed();
    ready_.clear();
    waiting_.clear();
    for (const std::uint32_t chunk : own_) {
      if (!states_[chunk].is_summed) {
        consider(chunk);
      }
    }
  });
}

void JobCore::leave(std::int64_t rank) {
  command([&] {
    const auto left = static_cast<std::size_t>(rank - context_.first_rank);
    while (peers_[left].link && !peers_[left].is_lost && take_arrivals_of(static_cast<std::int64_t>(left))) {
    }
    peers_[left].has_left = true;
    peers_[left].is_lost = true;
    for (std::size_t other = 0; other < peers_.size(); ++other) {
      if (!peers_[other].is_lost && peers_[other].commits > peers_[left].commits) {
        return context_.broken(uneven_steps(other, left));
      }
    }
  });
}

std::int64_t JobCore::settled_step() {
  std::int64_t step = std::numeric_limits<std::int64_t>::max();
  command([&] {
    for (const std::uint32_t chunk : own_) {
      step = std::min(step, states_[chunk].step);
    }
  });
  return step;
}

bool JobCore::take_arrivals() {
  bool any = false;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].link && !peers_[rank].is_lost && peers_[rank].link->queues.arrivals.ready()) {
      any = take_arrivals_of(static_cast<std::int64_t>(rank)) || any;
    }
  }
  for (auto& link : rack_links_) {
    if (link && link->queues.arrivals.ready()) {
      any = take_from_rack(*link) || any;
    }
  }
  return (core_ == 0 && context_.norms != nullptr && context_.norms->take()) || any;
}

bool JobCore::take_from_rack(RackLink& link) {
  for (int taken = 0; taken < kTurn; ++taken) {
    const auto number = link.queues.arrivals.poll();
    if (!number) {
      lose(link, number.error().message);
      return false;
    }
    if (!*number) {
      return taken != 0;
    }
    const std::uint32_t chunk = notice_chunk(**number);
    const bool is_ours = chunk < states_.size() && owner_rack(chunk, context_.settings.racks) == context_.rack;
    switch (notice_kind(**number)) {
      case Notice::kGradient:
      case Notice::kNone:
        if (is_ours) {
          take_sum(link.end->rack, chunk, notice_kind(**number) == Notice::kNone);
          continue;
        }
        break;
      case Notice::kWeights:
        if (chunk < states_.size() && !is_ours) {
          end_step(chunk, true);
          continue;
        }
        break;
      case Notice::kCommit:
        break;
    }
    lose(link, fmt::format("it sent notification {}, which means nothing", **number));
    return false;
  }
  return true;
}

void JobCore::lose(const RackLink& link, const std::string& reason) {
  const std::int64_t rack = link.end->rack;
  rack_links_[static_cast<std::size_t>(rack)].reset();
  context_.broken(fmt::format("the hub of rack {} is lost: {}", rack, reason));
}

bool JobCore::take_arrivals_of(std::int64_t rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  for (int taken = 0; taken < kTurn; ++taken) {
    const auto number = peer.link->queues.arrivals.poll();
    if (!number) {
      lose(rank, number.error().message);
      return false;
    }
    if (!*number) {
      return taken != 0;
    }
    take(rank, **number);
    if (peer.is_lost) {
      return false;
    }
  }
  return true;
}

void JobCore::lose(std::int64_t rank, const std::string& reason) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.is_lost = true;
  context_.lost(*peer.link->worker, reason);
}

void JobCore::take(std::int64_t rank, std::uint32_t number) {
  switch (notice_kind(number)) {
    case Notice::kCommit:
      return notice_chunk(number) == 0 ? take_commit(rank) : take_withdrawal(rank, notice_chunk(number) - 1);
    case Notice::kGradient:
      return take_chunk(rank, notice_chunk(number), false);
    case Notice::kNone:
      return take_chunk(rank, notice_chunk(number), true);
    case Notice::kTensor:
      return take_tensor(rank, notice_chunk(number));
  }
}

void JobCore::take_commit(std::int64_t rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const std::int64_t step = peer.commits;
  // It may commit a step while weights of the one before are still on their way, and no further.
  if (step > committed_ + 1 || static_cast<std::size_t>(step) > ended_ / std::max<std::size_t>(own_.size(), 1) + 1) {
    return lose(rank, "it committed a step before it had the weights of the one before");
  }
  for (std::size_t other = 0; other < peers_.size(); ++other) {
    if (peers_[other].has_left && peers_[other].commits <= step) {
      return context_.broken(uneven_steps(static_cast<std::size_t>(rank), other));
    }
  }
  if (!agrees_with_others(rank, step)) {
    return;
  }
  ++peer.commits;
  update_committed();
  std::vector<std::uint32_t> before;
  before.swap(waiting_);
  for (const std::uint32_t each : before) {
    consider(each);
  }
}

std::string JobCore::uneven_steps(std::size_t going, std::size_t left) const {
  const auto rank = [&](std::size_t peer) { return static_cast<std::int64_t>(peer) + context_.first_rank; };
  return fmt::format(
      "rank {} goes on to step {}, but rank {} has left after step {}: all replicas must take the same number of steps",
      rank(going), peers_[left].commits + 1, rank(left), peers_[left].commits);
}

bool JobCore::agrees_with_others(std::int64_t rank, std::int64_t step) {
  const WorkerEnd& worker = *peers_[static_cast<std::size_t>(rank)].link->worker;
  const std::byte* slot = worker.inbox != nullptr
                              ? worker.inbox->data() + context_.inbox.slot(static_cast<int>(core_), step)
                              : worker.memory->mapped() + context_.worker_memory.slot(step);
  auto& numbers = numbers_[step % kStepSlots];
  const std::size_t bytes = numbers.size() * sizeof(Hyperparameters);
  const auto earlier =
      std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.commits > step; });
  if (earlier == peers_.end()) {
    std::memcpy(numbers.data(), slot, bytes);
    return true;
  }
  if (std::memcmp(numbers.data(), slot, bytes) == 0) {
    return true;
  }
  std::vector<Hyperparameters> others(numbers.size());
  std::memcpy(others.data(), slot, bytes);
  std::string where = "its settings";
  for (std::size_t group = 0; group < numbers.size(); ++group) {
    if (others[group].learning_rate != numbers[group].learning_rate) {
      where = fmt::format("learning rate {} for parameter group {}, where rank {} has {}", others[group].learning_rate,
                          group, earlier - peers_.begin() + context_.first_rank, numbers[group].learning_rate);
      break;
    }
  }
  context_.broken(
      fmt::format("replicas disagree at step {}: rank {} gives {}", step, rank + context_.first_rank, where));
  return false;
}

void JobCore::take_tensor(std::int64_t rank, std::uint32_t key) {
  if (key >= done_of_.size() || own_begin_[key] == own_begin_[key + 1]) {
    return lose(rank, fmt::format("it pushed tensor {}, of which core {} has nothing", key, core_));
  }
  for (std::size_t index = own_begin_[key]; index < own_begin_[key + 1]; ++index) {
    take_chunk(rank, own_[index], false);
    if (peers_[static_cast<std::size_t>(rank)].is_lost) {
      return;
    }
  }
}

void JobCore::take_withdrawal(std::int64_t rank, std::uint32_t key) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (context_.settings.update_time != UpdateTime::kAtStep || key >= done_of_.size() ||
      own_begin_[key] == own_begin_[key + 1]) {
    return lose(rank, fmt::format("it withdrew tensor {}, which core {} cannot give back", key, core_));
  }
  for (std::size_t index = own_begin_[key]; index < own_begin_[key + 1]; ++index) {
    ChunkState& state = states_[own_[index]];
    if ((state.given & bit(rank)) == 0 || state.step != peer.commits) {
      return lose(rank, fmt::format("it withdrew tensor {}, which it had not given in this step", key));
    }
    state.given &= ~bit(rank);
    state.none &= ~bit(rank);
    state.merged = 0;
  }
  // Not in ready_, since this rank has not committed.
  std::erase_if(waiting_, [&](std::uint32_t chunk) { return context_.map.chunks[chunk].key == key; });
  if (const auto sent = peer.link->queues.sends.notify(notice(Notice::kNone, key)); !sent) {
    return lose(rank, sent.error().message);
  }
  unwoken_ = true;
}

void JobCore::take_chunk(std::int64_t rank, std::uint32_t chunk, bool none) {
  if (chunk >= context_.map.chunks.size() || context_.map.chunks[chunk].hub != context_.hub ||
      context_.map.chunks[chunk].core != core_) {
    return lose(rank, fmt::format("it pushed chunk {}, which is not of core {}", chunk, core_));
  }
  ChunkState& state = states_[chunk];
  if ((state.given & bit(rank)) != 0) {
    return lose(rank, fmt::format("it pushed chunk {} of step {} twice", chunk, state.step));
  }
  state.given |= bit(rank);
  if (none) {
    state.none |= bit(rank);
  } else if (row_elements(chunk) == 0) {
    counters_.gradient_bytes.fetch_add(
        static_cast<std::uint64_t>(context_.map.chunks[chunk].elements) * element_size(context_.settings.wire),
        std::memory_order_relaxed);
  }
  if (is_complete(state)) {
    return consider(chunk);
  }
  // Two or more that come first in the order of ranks may be summed before the rest is there.
  const int first = std::countr_one(state.given);
  if (!state.is_queued && first >= static_cast<int>(state.merged) + 2 && row_elements(chunk) == 0 &&
      is_worth_merging()) {
    state.is_queued = true;
    mergeable_.push_back(chunk);
  }
}

void JobCore::consider(std::uint32_t chunk) {
  const ChunkState& state = states_[chunk];
  if (is_complete(state)) {
    (state.step < committed_ ? ready_ : waiting_).push_back(chunk);
  }
}

void JobCore::update_committed() {
  std::int64_t committed = std::numeric_limits<std::int64_t>::max();
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if ((required_ & bit(static_cast<std::int64_t>(rank))) != 0) {
      committed = std::min(committed, peers_[rank].commits);
    }
  }
  committed_ = required_ == 0 ? 0 : committed;
}

}  // namespace tesser::hub
