#include "hub/client.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "control/control_http.h"

namespace tesser::hub {
namespace {

using transport::Strided;

// How long a wait sleeps before it looks at channels that nothing has come from.
constexpr std::chrono::milliseconds kLook{100};
// For the reason why a hub is gone.
constexpr int kLooksForReason = 20;
constexpr std::chrono::milliseconds kBetweenLooks{50};

}  // namespace

Client::Client(ClientOptions options, ChunkMap map)
    : options_(std::move(options)),
      map_(std::move(map)),
      layout_(map_, options_.settings),
      job_layout_(map_, options_.settings),
      pending_(std::make_unique<std::atomic<std::int64_t>[]>(options_.settings.keys.size())) {}

Client::~Client() {
  if (!has_left_ && weights_ != nullptr) {
    (void)leave();
  }
}

std::span<std::byte> Client::gradient(std::int64_t key) const {
  const auto index = static_cast<std::size_t>(key);
  const std::size_t width = element_size(options_.settings.wire);
  return {region_->data() + layout_.gradients(options_.rank) + static_cast<std::size_t>(map_.key_begin[index]) * width,
          static_cast<std::size_t>(options_.settings.keys[index].elements) * width};
}

std::span<float> Client::weights(std::int64_t key) const {
  TESSER_CHECK(weights_ != nullptr, "weights before start()");
  const auto index = static_cast<std::size_t>(key);
  return {weights_ + map_.key_begin[index], static_cast<std::size_t>(options_.settings.keys[index].elements)};
}

template <typename Use>
Result<void> Client::for_chunks_of(std::int64_t key, const Use& use) {
  const auto index = static_cast<std::size_t>(key);
  for (std::uint32_t number = map_.first_chunk[index]; number < map_.first_chunk[index + 1]; ++number) {
    Hub& hub = hubs_[map_.chunks[number].hub];
    const transport::Outcome<void> outcome = use(hub, hub.cores[map_.chunks[number].core], number);
    if (!outcome) {
      return explain(hub, outcome.error());
    }
  }
  return {};
}

Result<void> Client::push(std::int64_t key) { return push(key, Notice::kGradient); }
Result<void> Client::push_none(std::int64_t key) { return push(key, Notice::kNone); }

Result<void> Client::push_rows(std::int64_t key, std::span<const std::int64_t> rows,
                               std::span<const std::byte> values) {
  const Key& which = options_.settings.keys[static_cast<std::size_t>(key)];
  const std::size_t width = element_size(options_.settings.wire);
  const std::size_t row_bytes = static_cast<std::size_t>(which.row_elements) * width;
  const std::int64_t count = which.row_elements == 0 ? 0 : which.elements / which.row_elements;
  const bool ascend = std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end();
  if (row_bytes == 0 || values.size() != rows.size() * row_bytes || !ascend ||
      (!rows.empty() && (rows.front() < 0 || rows.back() >= count))) {
    return invalid_input(
        fmt::format("tensor '{}' has {} rows to give of {} bytes each; given were {} rows{} and {} bytes", which.name,
                    count, row_bytes, rows.size(), ascend ? "" : ", which do not ascend,", values.size()));
  }
  pending_[static_cast<std::size_t>(key)].fetch_add(map_.chunks_of(static_cast<std::uint32_t>(key)),
                                                    std::memory_order_relaxed);
  std::size_t next = 0;
  TESSER_RETURN_IF_ERROR(
      for_chunks_of(key, [&](Hub& hub, QueuePair& core, std::uint32_t number) -> transport::Outcome<void> {
        const Chunk& chunk = map_.chunks[number];
        const std::int64_t first = (chunk.begin - map_.key_begin[static_cast<std::size_t>(key)]) / which.row_elements;
        const std::int64_t end = first + chunk.elements / which.row_elements;
        const std::size_t begin = next;
        const std::uint64_t list = layout_.rows + static_cast<std::uint64_t>(chunk.rows_begin) * sizeof(RowNumber);
        auto* numbers = reinterpret_cast<RowNumber*>(region_->data() + list);
        for (; next < rows.size() && rows[next] < end; ++next) {
          numbers[1 + next - begin] = static_cast<RowNumber>(rows[next] - first);
        }
        numbers[0] = static_cast<RowNumber>(next - begin);
        const std::uint64_t offset = static_cast<std::uint64_t>(chunk.begin) * width;
        const std::size_t bytes = (next - begin) * row_bytes;
        const std::uint64_t place = layout_.gradients(options_.rank) + offset;
        std::memcpy(region_->data() + place, values.data() + begin * row_bytes, bytes);
        const std::uint32_t notification = notice(Notice::kGradient, number);
        if (hub.inbox == nullptr) {
          return core.sends.notify(notification, transport::Notification::kAlone);
        }
        const Inbox inbox(map_, options_.settings, static_cast<int>(hub.cores.size()));
        const std::uint64_t list_bytes = (1 + next - begin) * sizeof(RowNumber);
        if (bytes != 0) {
          TESSER_TRANSPORT_RETURN_IF_FAILED(
              hub.channel->write(*region_, Strided::contiguous(place, bytes), *hub.inbox,
                                 Strided::contiguous(Inbox::gradients(options_.rank) + offset, bytes), sent_));
        }
        TESSER_TRANSPORT_RETURN_IF_FAILED(hub.channel->write(
            *region_, Strided::contiguous(list, list_bytes), *hub.inbox,
            Strided::contiguous(inbox.rows + static_cast<std::uint64_t>(chunk.rows_begin) * sizeof(RowNumber),
                                list_bytes),
            sent_));
        return core.sends.notify(notification);  // behind both writes
      }));
  if (options_.settings.update_time == UpdateTime::kAtOnce) {
    wake_hubs();
  }
  return {};
}

Result<void> Client::push(std::int64_t key, Notice kind) {
  pending_[static_cast<std::size_t>(key)].fetch_add(map_.chunks_of(static_cast<std::uint32_t>(key)),
                                                    std::memory_order_relaxed);
  // Where the hub reads this memory, a tensor is one notification to each core.
  const auto is_whole = [&](const Hub& hub) { return hub.inbox == nullptr && kind == Notice::kGradient; };
  for (const ChunkMap::Share& share : map_.shares[static_cast<std::size_t>(key)]) {
    Hub& hub = hubs_[share.hub];
    if (is_whole(hub)) {
      const std::uint32_t number = notice(Notice::kTensor, static_cast<std::uint32_t>(key));
      const auto sent = hub.cores[share.core].sends.notify(number, transport::Notification::kAlone);
      if (!sent) {
        return explain(hub, sent.error());
      }
    }
  }
  if (!std::all_of(hubs_.begin(), hubs_.end(), is_whole)) {
    const std::size_t width = element_size(options_.settings.wire);
    TESSER_RETURN_IF_ERROR(
        for_chunks_of(key, [&](Hub& hub, QueuePair& core, std::uint32_t number) -> transport::Outcome<void> {
          if (is_whole(hub)) {
            return {};
          }
          const std::uint32_t notification = notice(kind, number);
          if (kind == Notice::kNone) {
            return core.sends.notify(notification, transport::Notification::kAlone);
          }
          const Chunk& chunk = map_.chunks[number];
          const std::uint64_t offset = static_cast<std::uint64_t>(chunk.begin) * width;
          const std::uint64_t bytes = static_cast<std::uint64_t>(chunk.elements) * width;
          return core.sends.write_and_notify(
              *region_, Strided::contiguous(layout_.gradients(options_.rank) + offset, bytes), *hub.inbox,
              Strided::contiguous(Inbox::gradients(options_.rank) + offset, bytes), notification, sent_);
        }));
  }
  if (options_.settings.update_time == UpdateTime::kAtOnce) {
    wake_hubs();
  }
  return {};
}

Result<void> Client::withdraw(std::span<const std::int64_t> keys) {
  TESSER_CHECK(options_.settings.update_time == UpdateTime::kAtStep, "weights may have changed");
  for (const std::int64_t key : keys) {
    const auto index = static_cast<std::size_t>(key);
    pending_[index].fetch_sub(map_.chunks_of(static_cast<std::uint32_t>(key)), std::memory_order_relaxed);
    for (const ChunkMap::Share& share : map_.shares[index]) {
      Hub& hub = hubs_[share.hub];
      const std::uint32_t number = notice(Notice::kCommit, static_cast<std::uint32_t>(key) + 1);
      if (const auto sent = hub.cores[share.core].sends.notify(number, transport::Notification::kAlone); !sent) {
        return explain(hub, sent.error());
      }
      ++withdrawing_;
    }
  }
  wake_hubs();
  Result<void> outcome;
  while (outcome && withdrawing_ != 0) {
    device_->wait([&] { return has_arrivals(); }, transport::in(kLook));
    outcome = take_pulls();
  }
  return outcome;
}

void Client::wake_hubs() {
  for (Hub& hub : hubs_) {
    for (QueuePair& core : hub.cores) {
      core.sends.wake();
    }
  }
}

Result<void> Client::commit(std::span<const Hyperparameters> groups) {
  TESSER_CHECK(groups.size() == options_.settings.groups.size(), std::to_string(groups.size()));
  std::memcpy(region_->data() + layout_.slot(step_), groups.data(), groups.size_bytes());
  // A hub takes a commit for the news that all gradients of the step are there.
  if (!sent_.done()) {
    device_->wait([&] { return sent_.done(); }, transport::in(options_.patience));
  }
  const std::uint32_t number = notice(Notice::kCommit, 0);
  const Strided source = Strided::contiguous(layout_.slot(step_), layout_.slot_bytes);
  for (std::size_t index = 0; index < hubs_.size(); ++index) {
    Hub& hub = hubs_[index];
    const Inbox inbox(map_, options_.settings, static_cast<int>(hub.cores.size()));
    for (std::size_t core = 0; core < hub.cores.size(); ++core) {
      const Strided target = Strided::contiguous(inbox.slot(static_cast<int>(core), step_), inbox.slot_bytes);
      auto& pushes = hub.cores[core].sends;
      const auto outcome = hub.inbox == nullptr
                               ? pushes.notify(number, transport::Notification::kAlone)
                               : pushes.write_and_notify(*region_, source, *hub.inbox, target, number, sent_);
      if (!outcome) {
        return explain(hub, outcome.error());
      }
    }
  }
  wake_hubs();
  ++step_;
  return {};
}

Result<void> Client::take_pulls() {
  for (std::uint32_t index = 0; index < hubs_.size(); ++index) {
    Hub& hub = hubs_[index];
    for (std::uint32_t core = 0; core < hub.cores.size(); ++core) {
      while (true) {
        const auto number = hub.cores[core].arrivals.poll();
        if (!number) {
          return explain(hub, number.error());
        }
        if (!*number) {
          break;
        }
        TESSER_RETURN_IF_ERROR(take_pull(index, core, **number));
      }
    }
  }
  return {};
}

Result<void> Client::take_pull(std::uint32_t hub, std::uint32_t core, std::uint32_t number) {
  const std::uint32_t which = notice_chunk(number);
  if (notice_kind(number) == Notice::kTensor && which < map_.shares.size()) {
    pending_[which].fetch_sub(map_.chunks_of(which, hub, core), std::memory_order_relaxed);
    return {};
  }
  if (notice_kind(number) == Notice::kGradient && which < map_.chunks.size()) {
    pending_[map_.chunks[which].key].fetch_sub(1, std::memory_order_relaxed);
    return {};
  }
  if (notice_kind(number) == Notice::kNone && withdrawing_ != 0) {
    --withdrawing_;
    return {};
  }
  return failed(fmt::format("the hub at {} sent a notification that means nothing", hubs_[hub].url));
}

Result<bool> Client::is_current(std::int64_t key) {
  const auto& pending = pending_[static_cast<std::size_t>(key)];
  if (pending.load(std::memory_order_relaxed) == 0) {
    return true;
  }
  TESSER_RETURN_IF_ERROR(take_pulls());
  return pending.load(std::memory_order_relaxed) == 0;
}

bool Client::has_arrivals() const {
  return std::any_of(hubs_.begin(), hubs_.end(), [](const Hub& hub) {
    return hub.channel->failed() ||
           std::any_of(hub.cores.begin(), hub.cores.end(), [](const QueuePair& core) { return core.arrivals.ready(); });
  });
}

Result<void> Client::wait(std::int64_t key) {
  while (true) {
    TESSER_ASSIGN_OR_RETURN(const bool current, wait_for(key, kLook));
    if (current) {
      return {};
    }
  }
}

Result<bool> Client::wait_for(std::int64_t key, std::chrono::milliseconds most) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  Result<bool> current = is_current(key);
  // Arrivals are taken while it waits: a wait that ended with each would spin, and take the hub's time, until the last.
  const auto has_news = [&] {
    if (has_arrivals()) {
      current = is_current(key);
    }
    return !current || *current;
  };
  while (current && !*current) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) {
      break;
    }
    device_->wait(has_news, transport::in(std::min<std::chrono::nanoseconds>(kLook, left)));
    if (current && !*current) {
      current = is_current(key);  // the end of a channel shows only when asked for
    }
  }
  return current;
}

Result<void> Client::wait_all() {
  for (std::size_t key = 0; key < options_.settings.keys.size(); ++key) {
    TESSER_RETURN_IF_ERROR(wait(static_cast<std::int64_t>(key)));
  }
  return {};
}

Result<void> Client::fetch_state() {
  if (options_.settings.racks == 1 || fetched_step_ == step_) {
    return {};
  }
  for (Hub& hub : hubs_) {
    TESSER_RETURN_IF_ERROR(hub.control->post("/v1/jobs/state", to_json(request())));
  }
  fetched_step_ = step_;
  return {};
}

Result<void> Client::read_state(std::int64_t key, int tensor, std::span<float> values) {
  const auto index = static_cast<std::size_t>(key);
  const Key& which = options_.settings.keys[index];
  if (tensor < 0 || tensor >= job_layout_.state_tensors || values.size() != static_cast<std::size_t>(which.elements)) {
    return invalid_input(
        fmt::format("tensor '{}' has no state tensor {} of {} elements", which.name, tensor, values.size()));
  }
  TESSER_RETURN_IF_ERROR(fetch_state());
  TESSER_ASSIGN_OR_RETURN(auto scratch, as_result(device_->allocate(values.size_bytes(), {.name = "optimizer state"})));
  transport::Completion read;
  TESSER_RETURN_IF_ERROR(for_chunks_of(key, [&](Hub& hub, QueuePair&, std::uint32_t number) {
    const Chunk& chunk = map_.chunks[number];
    const auto bytes = static_cast<std::uint64_t>(chunk.elements) * sizeof(float);
    const auto to = static_cast<std::uint64_t>(chunk.begin - map_.key_begin[index]) * sizeof(float);
    const auto from = job_layout_.state(tensor) + static_cast<std::uint64_t>(chunk.begin) * sizeof(float);
    return hub.channel->read(*hub.memory, Strided::contiguous(from, bytes), *scratch, Strided::contiguous(to, bytes),
                             read);
  }));
  if (!device_->wait([&] { return read.done(); }, transport::in(options_.patience))) {
    return failed(fmt::format("the state of tensor '{}' has not come from the hub", which.name));
  }
  TESSER_RETURN_IF_ERROR(as_result(read.outcome()));
  std::memcpy(values.data(), scratch->data(), values.size_bytes());
  return {};
}

Result<std::int64_t> Client::read_updates(std::int64_t key) {
  TESSER_RETURN_IF_ERROR(fetch_state());
  // All chunks of a tensor have had the same.
  const std::uint32_t chunk = map_.first_chunk[static_cast<std::size_t>(key)];
  Hub& hub = hubs_[map_.chunks[chunk].hub];
  TESSER_ASSIGN_OR_RETURN(auto scratch,
                          as_result(device_->allocate(sizeof(std::int64_t), {.name = "number of updates"})));
  transport::Completion read;
  const auto outcome =
      hub.channel->read(*hub.memory, Strided::contiguous(job_layout_.updates(chunk), sizeof(std::int64_t)), *scratch,
                        Strided::contiguous(0, sizeof(std::int64_t)), read);
  if (!outcome) {
    return explain(hub, outcome.error());
  }
  TESSER_RETURN_IF_ERROR(flush(hub, read));
  return *reinterpret_cast<const std::int64_t*>(scratch->data());
}

Result<std::string> Client::state(std::size_t hub) {
  TESSER_ASSIGN_OR_RETURN(const std::string answer, hubs_[hub].control->post("/v1/jobs/status", to_json(request())));
  TESSER_ASSIGN_OR_RETURN(const JobStatus status, read_job_status(answer));
  if (!status.reason.empty()) {
    return failed(fmt::format("job {} has failed at the hub: {}", options_.job, status.reason));
  }
  return status.state;
}

Result<void> Client::leave() {
  has_left_ = true;
  Result<void> outcome;
  for (Hub& hub : hubs_) {
    if (const auto answer = hub.control->post("/v1/jobs/leave", to_json(request())); !answer) {
      outcome = tl::unexpected<Error>(answer.error());
    }
  }
  return outcome;
}

std::string Client::reason_at(Hub& hub) {
  const auto answer = hub.control->post("/v1/jobs/status", to_json(request()));
  const auto status = answer ? read_job_status(*answer) : tl::unexpected<Error>(answer.error());
  return status ? status->reason : "";
}

tl::unexpected<Error> Client::explain(Hub& hub, const transport::Failure& failure) {
  const std::lock_guard lock(explaining_);  // the thread that pushes and the one that waits may both fail
  has_left_ = true;                         // who has failed is not waited for
  // Who sends no heartbeat does not answer either, and the user has waited long enough.
  if (failure.kind != transport::FailureKind::kPeerSilent) {
    std::string reason = reason_at(hub);
    // A hub that is gone may have been in a worker's process, which the others name once they know of it.
    for (int look = 0; reason.empty() && hubs_.size() > 1 && look < kLooksForReason; ++look) {
      std::this_thread::sleep_for(kBetweenLooks);
      for (std::size_t other = 0; reason.empty() && other < hubs_.size(); ++other) {
        reason = &hubs_[other] == &hub ? "" : reason_at(hubs_[other]);
      }
    }
    if (!reason.empty()) {
      return failed(fmt::format("job {} has failed at the hub: {}", options_.job, reason));
    }
  }
  return failed(fmt::format("job {}: the hub at {} is lost: {}", options_.job, hub.url, failure.message));
}

std::vector<std::string> Client::paths() const {
  std::vector<std::string> paths;
  for (const Hub& hub : hubs_) {
    paths.push_back(fmt::format("{}: {} ({})", hub.url, hub.channel->path().name, hub.channel->path().reason));
  }
  return paths;
}

}  // namespace tesser::hub
