#include "hub/job_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace tesser::hub {
namespace {

using transport::Strided;

// How often the ends of channels are looked for while nothing arrives.
constexpr std::chrono::milliseconds kLook{20};
// Notifications taken from one worker before the next has its turn.
constexpr int kTurn = 256;

std::uint64_t bit(std::int64_t rank) { return std::uint64_t{1} << rank; }
std::uint64_t ranks_below(std::uint32_t rank) { return rank >= 64 ? ~std::uint64_t{0} : bit(rank) - 1; }

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
  std::int64_t elements = 0;
  for (std::uint32_t chunk = 0; chunk < context.map.chunks.size(); ++chunk) {
    const Chunk& each = context.map.chunks[chunk];
    if (each.hub == context.hub && each.core == core) {
      own_.push_back(chunk);
      merge_begin_[chunk] = elements;
      elements += each.elements;
      if (row_elements(chunk) != 0) {
        row_sum_.resize(std::max(row_sum_.size(), static_cast<std::size_t>(each.elements)));
      }
    }
  }
  const bool merges = context.sums == nullptr && (context.clipping != nullptr || context.workers > 2);
  merge_.resize(merges ? static_cast<std::size_t>(elements) : 0);
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
    if (arrived || worked || merge_ahead()) {
      continue;
    }
    context_.device->wait(
        [this] {
          return stops_.load(std::memory_order_relaxed) || has_commands_.load(std::memory_order_relaxed) ||
                 (summed_ == own_.size() && summed_ != 0 && context_.clipping->is_known(states_[own_.front()].step)) ||
                 (core_ == 0 && context_.norms != nullptr && context_.norms->has_news()) ||
                 std::any_of(rack_links_.begin(), rack_links_.end(),
                             [](const auto& link) { return link && link->arrivals.ready(); }) ||
                 std::any_of(peers_.begin(), peers_.end(),
                             [](const Peer& peer) { return peer.link && !peer.is_lost && peer.link->pushes.ready(); });
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
    Peer& peer = peers_[static_cast<std::size_t>(rank - context_.first_rank)];
    peer.has_left = true;
    peer.is_lost = true;
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
    if (peers_[rank].link && !peers_[rank].is_lost && peers_[rank].link->pushes.ready()) {
      any = take_arrivals_of(static_cast<std::int64_t>(rank)) || any;
    }
  }
  for (auto& link : rack_links_) {
    if (link && link->arrivals.ready()) {
      any = take_from_rack(*link) || any;
    }
  }
  return (core_ == 0 && context_.norms != nullptr && context_.norms->take()) || any;
}

bool JobCore::take_from_rack(RackLink& link) {
  for (int taken = 0; taken < kTurn; ++taken) {
    const auto number = link.arrivals.poll();
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
    const auto number = peer.link->pushes.poll();
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
      return take_commit(rank);
    case Notice::kGradient:
      return take_chunk(rank, notice_chunk(number), false);
    case Notice::kNone:
      return take_chunk(rank, notice_chunk(number), true);
    case Notice::kWeights:
      break;
  }
  lose(rank, fmt::format("it sent notification {}, which means nothing", number));
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
      return context_.broken(
          fmt::format("rank {} goes on to step {}, but rank {} has left after step {}: all replicas must take the same "
                      "number of steps",
                      rank + context_.first_rank, step + 1, static_cast<std::int64_t>(other) + context_.first_rank,
                      peers_[other].commits));
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
  if (can_merge() && row_elements(chunk) == 0 && !state.is_queued && first >= static_cast<int>(state.merged) + 2) {
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

bool JobCore::work() {
  if (ready_.empty() && (summed_ == 0 || summed_ != own_.size())) {
    return false;
  }
  // Tensors are in the order of the model: those that the next step needs first come first.
  std::sort(ready_.begin(), ready_.end());
  if (context_.clipping != nullptr) {
    for (const std::uint32_t chunk : ready_) {
      sum_for_clipping(chunk);
    }
    ready_.clear();
    if (summed_ != own_.size() || !context_.clipping->is_known(states_[own_.front()].step)) {
      return false;
    }
    const auto replicas = static_cast<double>(std::popcount(states_[own_.front()].given));
    const double average = context_.settings.average ? 1 / replicas : 1;
    const double norm = std::sqrt(context_.clipping->total()) * average;
    const double factor = std::min(1.0, context_.settings.clip_norm / (norm + 1e-6));
    summed_ = 0;
    for (const std::uint32_t chunk : own_) {
      states_[chunk].is_summed = false;
      update(chunk, static_cast<float>(average * factor));
    }
    return true;
  }
  std::vector<std::uint32_t> ready;
  ready.swap(ready_);
  for (const std::uint32_t chunk : ready) {
    finish(chunk);
  }
  return true;
}

bool JobCore::merge_ahead() {
  while (!mergeable_.empty()) {
    const std::uint32_t chunk = mergeable_.back();
    mergeable_.pop_back();
    ChunkState& state = states_[chunk];
    state.is_queued = false;
    const auto first = static_cast<std::uint32_t>(std::countr_one(state.given));
    if (is_complete(state) || first < state.merged + 2) {
      continue;
    }
    const auto& sources = sources_of(chunk, state.merged, first);
    float* sum = merge_buffer(chunk);
    const auto count = static_cast<int>(sources.size());
    if (count != 0) {
      (holds_sum(state) ? sum_loops().add : sum_loops().sum)(sum, sources.data(), count,
                                                             context_.map.chunks[chunk].elements, element_);
    }
    state.merged = first;
    return true;
  }
  return false;
}

std::vector<const void*>& JobCore::sources_of(std::uint32_t chunk, std::uint32_t from, std::uint32_t until) {
  const ChunkState& state = states_[chunk];
  const std::uint64_t offset =
      static_cast<std::uint64_t>(context_.map.chunks[chunk].begin) * element_size(context_.settings.wire);
  sources_.clear();
  for (std::uint32_t rank = from; rank < until; ++rank) {
    if ((state.given & ~state.none & bit(rank)) != 0) {
      sources_.push_back(peers_[rank].link->worker->gradients(context_.worker_memory) + offset);
    }
  }
  return sources_;
}

bool JobCore::holds_sum(const ChunkState& state) {
  return (ranks_below(state.merged) & state.given & ~state.none) != 0;
}

float* JobCore::merge_buffer(std::uint32_t chunk) {
  return context_.sums != nullptr ? reinterpret_cast<float*>(context_.sums->data()) + context_.map.chunks[chunk].begin
                                  : merge_.data() + merge_begin_[chunk];
}

bool JobCore::add_rows(std::uint32_t chunk, float* sum) {
  const ChunkState& state = states_[chunk];
  const Chunk& each = context_.map.chunks[chunk];
  const std::int64_t row = row_elements(chunk);
  const auto rows = static_cast<RowNumber>(each.elements / row);
  const std::size_t width = element_size(context_.settings.wire);
  std::fill_n(sum, each.elements, 0.0F);
  RowNumber touched = 0;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if ((state.given & ~state.none & bit(static_cast<std::int64_t>(rank))) == 0) {
      continue;
    }
    const WorkerEnd& worker = *peers_[rank].link->worker;
    const RowNumber* list = worker.rows(context_.worker_memory, context_.inbox) + each.rows_begin;
    const std::byte* values = worker.gradients(context_.worker_memory) + static_cast<std::size_t>(each.begin) * width;
    const RowNumber count = std::min(list[0], rows);
    for (RowNumber number = 0; number < count; ++number) {
      const void* source = values + static_cast<std::size_t>(number) * static_cast<std::size_t>(row) * width;
      // What is no row of the chunk would be another's memory.
      const RowNumber place = std::min(list[1 + number], rows - 1);
      sum_loops().add(sum + static_cast<std::int64_t>(place) * row, &source, 1, row, element_);
    }
    touched += count;
  }
  counters_.gradient_bytes.fetch_add(touched * static_cast<std::uint64_t>(row) * width, std::memory_order_relaxed);
  const ParameterGroup& group =
      context_.settings.groups[static_cast<std::size_t>(context_.settings.keys[each.key].group)];
  const Hyperparameters& numbers =
      numbers_[state.step % kStepSlots][static_cast<std::size_t>(context_.settings.keys[each.key].group)];
  // Momentum, Adam and weight decay change rows that no batch has touched.
  const bool zeros_change_nothing =
      group.algorithm == Algorithm::kSgd && !group.has_momentum && numbers.weight_decay == 0;
  return (state.given & ~state.none) != 0 && (touched != 0 || !zeros_change_nothing);
}

bool JobCore::sum_up(std::uint32_t chunk) {
  ChunkState& state = states_[chunk];
  if (row_elements(chunk) != 0) {
    state.merged = static_cast<std::uint32_t>(peers_.size());
    return add_rows(chunk, merge_buffer(chunk));
  }
  const auto& sources = sources_of(chunk, state.merged, static_cast<std::uint32_t>(peers_.size()));
  const bool held = holds_sum(state);
  if (!sources.empty()) {
    (held ? sum_loops().add : sum_loops().sum)(merge_buffer(chunk), sources.data(), static_cast<int>(sources.size()),
                                               context_.map.chunks[chunk].elements, element_);
  }
  state.merged = static_cast<std::uint32_t>(peers_.size());
  return held || !sources.empty();
}

void JobCore::sum_for_clipping(std::uint32_t chunk) {
  ChunkState& state = states_[chunk];
  const bool any = sum_up(chunk);
  context_.clipping->set_squares(
      chunk, any ? sum_loops().squares(merge_buffer(chunk), context_.map.chunks[chunk].elements) : 0);
  state.is_summed = true;
  if (++summed_ == own_.size()) {
    context_.clipping->core_done(state.step, context_.combine);
  }
}

void JobCore::finish_in_rack(std::uint32_t chunk) {
  const bool any = sum_up(chunk);
  const std::int64_t owner = owner_rack(chunk, context_.settings.racks);
  if (owner == context_.rack) {
    return take_sum(owner, chunk, !any);
  }
  auto& link = rack_links_[static_cast<std::size_t>(owner)];
  if (!link) {
    return;  // the job is broken
  }
  const Chunk& each = context_.map.chunks[chunk];
  const auto bytes = static_cast<std::uint64_t>(each.elements) * sizeof(float);
  const auto begin = static_cast<std::uint64_t>(each.begin) * sizeof(float);
  const std::uint64_t slot = static_cast<std::uint64_t>(context_.rack) * context_.sums->bytes();
  const auto sent = any ? link->sends.write_and_notify(*context_.sums, Strided::contiguous(begin, bytes),
                                                       *link->end->inbox, Strided::contiguous(slot + begin, bytes),
                                                       notice(Notice::kGradient, chunk), rack_sent_)
                        : link->sends.notify(notice(Notice::kNone, chunk), transport::Notification::kAlone);
  if (!sent) {
    return lose(*link, sent.error().message);
  }
  counters_.rack_bytes.fetch_add(any ? bytes : 0, std::memory_order_relaxed);
}

void JobCore::take_sum(std::int64_t rack, std::uint32_t chunk, bool none) {
  ChunkState& state = states_[chunk];
  state.rack_given |= bit(rack);
  state.rack_none |= none ? bit(rack) : 0;
  if (std::popcount(state.rack_given) == static_cast<int>(context_.settings.racks)) {
    update_from_racks(chunk);
  }
}

void JobCore::update_from_racks(std::uint32_t chunk) {
  ChunkState& state = states_[chunk];
  const Chunk& each = context_.map.chunks[chunk];
  const auto begin = static_cast<std::uint64_t>(each.begin) * sizeof(float);
  sources_.clear();
  for (std::int64_t rack = 0; rack < context_.settings.racks; ++rack) {
    if ((state.rack_none & bit(rack)) == 0) {
      const std::uint64_t slot = static_cast<std::uint64_t>(rack) * context_.sums->bytes();
      sources_.push_back(rack == context_.rack ? context_.sums->data() + begin
                                               : context_.rack_inbox->data() + slot + begin);
    }
  }
  const bool changed = !sources_.empty();
  if (changed) {
    const double average = context_.settings.average ? 1.0 / static_cast<double>(context_.settings.replicas) : 1.0;
    apply(chunk, nullptr, sources_, WireElement::kFloat32, static_cast<float>(average));
  }
  state.rack_given = 0;
  state.rack_none = 0;
  const auto bytes = static_cast<std::uint64_t>(each.elements) * sizeof(float);
  const Strided place = Strided::contiguous(begin, bytes);
  const std::uint32_t number = notice(Notice::kWeights, chunk);
  for (auto& link : rack_links_) {
    if (!link) {
      continue;
    }
    const auto sent =
        changed ? link->sends.write_and_notify(*context_.region, place, *link->end->memory, place, number, rack_sent_)
                : link->sends.notify(number, transport::Notification::kAlone);
    if (!sent) {
      lose(*link, sent.error().message);
      continue;
    }
    counters_.rack_bytes.fetch_add(changed ? bytes : 0, std::memory_order_relaxed);
  }
  end_step(chunk, changed);
}

void JobCore::finish(std::uint32_t chunk) {
  if (context_.settings.racks > 1) {
    return finish_in_rack(chunk);
  }
  const double average =
      context_.settings.average ? 1.0 / static_cast<double>(std::popcount(states_[chunk].given)) : 1.0;
  update(chunk, static_cast<float>(average));
}

void JobCore::update(std::uint32_t chunk, float scale) {
  ChunkState& state = states_[chunk];
  const Chunk& each = context_.map.chunks[chunk];
  bool changed = (state.given & ~state.none) != 0;
  if (context_.rate_limit != nullptr) {
    const auto replicas = static_cast<std::uint64_t>(std::popcount(state.given));
    const auto when =
        context_.rate_limit->take(2 * replicas * static_cast<std::uint64_t>(each.elements) * sizeof(float));
    std::this_thread::sleep_until(when);
  }
  if (row_elements(chunk) != 0) {
    const bool is_summed = state.merged != 0;
    float* sum = is_summed ? merge_buffer(chunk) : row_sum_.data();
    changed = is_summed ? changed : add_rows(chunk, sum);
    if (changed) {
      apply(chunk, sum, {}, element_, scale);
    }
  } else if (changed) {
    const float* merged = holds_sum(state) ? merge_buffer(chunk) : nullptr;
    apply(chunk, merged, sources_of(chunk, state.merged, static_cast<std::uint32_t>(peers_.size())), element_, scale);
  }
  end_step(chunk, changed);
}

void JobCore::apply(std::uint32_t chunk, const float* first, std::span<const void* const> sources, WireElement element,
                    float scale) {
  const Chunk& each = context_.map.chunks[chunk];
  const auto group = static_cast<std::size_t>(context_.settings.keys[each.key].group);
  ChunkMemory memory;
  memory.weights = context_.weights + each.begin;
  for (std::size_t tensor = 0; tensor < memory.state.size(); ++tensor) {
    memory.state[tensor] = context_.state[tensor] == nullptr ? nullptr : context_.state[tensor] + each.begin;
  }
  memory.elements = each.elements;
  update_chunk(memory, first, sources, element, context_.settings.groups[group],
               numbers_[states_[chunk].step % kStepSlots][group], context_.updates[chunk], scale);
  ++context_.updates[chunk];
  counters_.updates.fetch_add(1, std::memory_order_relaxed);
}

void JobCore::end_step(std::uint32_t chunk, bool changed) {
  ChunkState& state = states_[chunk];
  state.given = 0;
  state.none = 0;
  state.merged = 0;
  ++state.step;
  ++ended_;
  give_weights(chunk, changed);
}

void JobCore::give_weights(std::uint32_t chunk, bool changed) {
  const Chunk& each = context_.map.chunks[chunk];
  const auto bytes = static_cast<std::uint64_t>(each.elements) * sizeof(float);
  const Strided place = Strided::contiguous(static_cast<std::uint64_t>(each.begin) * sizeof(float), bytes);
  const std::uint32_t number = notice(Notice::kGradient, chunk);
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.link || peer.is_lost) {
      continue;
    }
    const bool writes = changed && !peer.link->worker->shares_weights;
    const auto sent = writes ? peer.link->pulls.write_and_notify(*context_.region, place, *peer.link->worker->memory,
                                                                 place, number, peer.sent)
                             : peer.link->pulls.notify(number);
    if (!sent) {
      lose(static_cast<std::int64_t>(rank), sent.error().message);
    }
    counters_.weight_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
}

}  // namespace tesser::hub
