// The work of a core: sums, updates, and what is sent of them. What arrives is in job_core.cc.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "hub/job_core.h"

namespace tesser::hub {
namespace {

using transport::Strided;

// Workers that sleep are woken at most this often while there is more to update, which takes as long as some chunks do.
constexpr std::chrono::microseconds kBetweenWakes{1000};

std::uint64_t ranks_below(std::uint32_t rank) { return rank >= 64 ? ~std::uint64_t{0} : bit(rank) - 1; }

}  // namespace

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
  for (std::size_t index = 0; index < ready.size(); ++index) {
    finish(ready[index]);
    // Who waits for a tensor sleeps until its last chunk.
    const auto key_of = [&](std::size_t of) { return context_.map.chunks[ready[of]].key; };
    if (index + 1 < ready.size() && key_of(index) != key_of(index + 1) &&
        std::chrono::steady_clock::now() >= woken_ + kBetweenWakes) {
      wake_workers();
    }
  }
  return true;
}

void JobCore::wake_workers() {
  for (Peer& peer : peers_) {
    if (peer.link && !peer.is_lost) {
      peer.link->queues.sends.wake();
    }
  }
  unwoken_ = false;
  woken_ = std::chrono::steady_clock::now();
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

bool JobCore::is_worth_merging() const {
  // What has come over the network has cost this core nothing so far.
  return context_.has_spare_processors || std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
           return peer.link && peer.link->worker->inbox != nullptr;
         });
}

float* JobCore::merge_buffer(std::uint32_t chunk) {
  if (context_.sums == nullptr && merge_.empty()) {
    merge_.resize(static_cast<std::size_t>(merge_elements_));  // by this thread, so in its socket's memory
  }
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
  const Chunk& each = context_.map.chunks[chunk];
  const Key& key = context_.settings.keys[each.key];
  const bool is_gradient =
      context_.settings.groups[static_cast<std::size_t>(key.group)].algorithm != Algorithm::kAssign;
  const bool counts = any && key.in_norm && is_gradient;
  context_.clipping->set_squares(chunk, counts ? sum_loops().squares(merge_buffer(chunk), each.elements) : 0);
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
  const auto sent = any ? link->queues.sends.write_and_notify(
                              *context_.sums, Strided::contiguous(begin, bytes), *link->end->inbox,
                              Strided::contiguous(slot + begin, bytes), notice(Notice::kGradient, chunk), rack_sent_)
                        : link->queues.sends.notify(notice(Notice::kNone, chunk), transport::Notification::kAlone);
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
    const auto sent = changed ? link->queues.sends.write_and_notify(*context_.region, place, *link->end->memory, place,
                                                                    number, rack_sent_)
                              : link->queues.sends.notify(number, transport::Notification::kAlone);
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
  bool changed = (state.given & ~state.none) != 0;
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
  if (context_.rate_limit != nullptr) {
    const auto bytes = static_cast<std::uint64_t>(context_.map.chunks[chunk].elements) * sizeof(float);
    const auto when = context_.rate_limit->take(2 * static_cast<std::uint64_t>(std::popcount(state.given)) * bytes);
    std::this_thread::sleep_until(when);
  }
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
  const bool ends_tensor = ++done_of_[each.key] == own_begin_[each.key + 1] - own_begin_[each.key];
  if (ends_tensor) {
    done_of_[each.key] = 0;
  }
  unwoken_ = true;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.link || peer.is_lost) {
      continue;
    }
    if (const auto sent = give_weights(peer, chunk, changed, ends_tensor); !sent) {
      lose(static_cast<std::int64_t>(rank), sent.error().message);
    }
    counters_.weight_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
}

transport::Outcome<void> JobCore::give_weights(Peer& peer, std::uint32_t chunk, bool changed, bool ends_tensor) {
  const Chunk& each = context_.map.chunks[chunk];
  auto& sends = peer.link->queues.sends;
  if (peer.link->worker->shares_weights) {
    return ends_tensor ? sends.notify(notice(Notice::kTensor, each.key)) : transport::Outcome<void>();
  }
  const std::uint32_t number = notice(Notice::kGradient, chunk);
  if (!changed) {
    return sends.notify(number);
  }
  const Strided place = Strided::contiguous(static_cast<std::uint64_t>(each.begin) * sizeof(float),
                                            static_cast<std::uint64_t>(each.elements) * sizeof(float));
  return sends.write_and_notify(*context_.region, place, *peer.link->worker->memory, place, number, peer.sent);
}

}  // namespace tesser::hub
