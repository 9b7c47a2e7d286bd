#include "hub/client.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "control/control_http.h"

namespace tesser::hub {
namespace {

using transport::Strided;

constexpr std::chrono::seconds kConnectPatience{20};
// For the answer to a request; the last worker to start waits for weights to be given to all.
constexpr std::chrono::seconds kAnswerPatience{60};
// Between two requests for the same thing.
constexpr std::chrono::milliseconds kAskAgain{10};
// How long a wait sleeps before it looks at channels that nothing has come from.
constexpr std::chrono::milliseconds kLook{100};

tl::unexpected<Error> as_error(const transport::Failure& failure) {
  return tl::unexpected<Error>(transport::to_error(failure));
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown host";
}

// What GET /v1/hub answers.
Result<std::int64_t> read_cores(const std::string& text) {
  return read_json_object<std::int64_t>(
      text, "answer", [](JsonReader& reader, std::int64_t& cores) { cores = reader.integer("cores", 1); });
}

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

Result<std::unique_ptr<Client>> Client::join(ClientOptions options) {
  TESSER_RETURN_IF_ERROR(check(options.settings));
  if (options.hubs.empty()) {
    return invalid_input("name the hub, as http://HOST:PORT");
  }
  if (options.rank < 0 || options.rank >= options.settings.replicas) {
    return invalid_input(fmt::format("rank {} of {} replicas", options.rank, options.settings.replicas));
  }
  const auto racks = static_cast<std::size_t>(options.settings.racks);
  if (options.hubs.size() % racks != 0) {
    return invalid_input(fmt::format("{} hubs on {} racks; each rack needs as many", options.hubs.size(), racks));
  }
  const std::size_t hubs_of_rack = options.hubs.size() / racks;
  const auto rack = static_cast<std::size_t>(options.rank / (options.settings.replicas / options.settings.racks));
  std::vector<Hub> hubs;
  std::vector<std::int64_t> cores;
  for (std::size_t index = 0; index < hubs_of_rack; ++index) {
    Hub hub;
    const std::string& url = options.hubs[rack * hubs_of_rack + index];
    hub.url = url;
    for (std::size_t other = 0; racks > 1 && other < racks; ++other) {
      hub.urls_of_racks.push_back(options.hubs[other * hubs_of_rack + index]);
    }
    TESSER_ASSIGN_OR_RETURN(hub.control, control::ControlClient::open(url, options.token, kAnswerPatience, "hub"));
    TESSER_ASSIGN_OR_RETURN(const std::string answer, hub.control->get("/v1/hub"));
    TESSER_ASSIGN_OR_RETURN(const std::int64_t count, read_cores(answer));
    cores.push_back(count);
    hubs.push_back(std::move(hub));
  }
  TESSER_ASSIGN_OR_RETURN(ChunkMap map, map_chunks(options.settings, {cores.begin(), cores.end()}));
  std::unique_ptr<Client> client(new Client(std::move(options), std::move(map)));
  client->hubs_ = std::move(hubs);
  TESSER_RETURN_IF_ERROR(client->open_hubs());
  for (std::size_t index = 0; index < client->hubs_.size(); ++index) {
    TESSER_RETURN_IF_ERROR(client->join_hub(index, cores));
  }
  return client;
}

Result<void> Client::open_hubs() {
  transport::DeviceOptions options;
  options.name = worker_name(options_.rank);
  options.run = run_of(options_.job, options_.nonce);
  options.paths = options_.through_network ? transport::Paths::kNetworkOnly : transport::Paths::kAny;
  TESSER_ASSIGN_OR_RETURN(const std::string host, hubs_.front().control->own_host());
  options.listen = host.find(':') == std::string::npos ? host + ":0" : "[" + host + "]:0";
  std::vector<ChunkMap::Load> cores;
  for (const auto& hub : map_.loads) {
    cores.insert(cores.end(), hub.begin(), hub.end());
  }
  options.signal_bytes = signal_bytes(cores, 1);
  auto device = transport::Device::open(std::move(options));
  if (!device) {
    return as_error(device.error());
  }
  device_ = std::move(*device);
  auto region = device_->allocate(layout_.bytes, {.name = "weights and gradients of " + worker_name(options_.rank)});
  if (!region) {
    return as_error(region.error());
  }
  region_ = std::move(*region);
  return {};
}

Result<void> Client::join_hub(std::size_t index, const std::vector<std::int64_t>& cores) {
  Hub& hub = hubs_[index];
  JoinRequest request;
  request.job = options_.job;
  request.nonce = options_.nonce;
  request.rank = options_.rank;
  request.host = host_name();
  request.process = ::getpid();
  request.memory = region_->handle();
  request.hub = static_cast<std::int64_t>(index);
  request.cores = cores;
  request.home_address = hubs_.front().joined.address;
  request.home = hubs_.front().joined.memory;
  request.urls = hub.urls_of_racks;
  request.settings = options_.settings;
  TESSER_ASSIGN_OR_RETURN(const std::string answer, hub.control->post("/v1/jobs/join", to_json(request)));
  TESSER_ASSIGN_OR_RETURN(hub.joined, read_join_answer(answer));
  is_return_ = is_return_ || hub.joined.is_return;
  step_ = std::max(step_, hub.joined.commits);
  return connect_hub(hub);
}

Result<void> Client::connect_hub(Hub& hub) {
  auto channel = device_->connect(hub.joined.address, transport::in(kConnectPatience));
  if (!channel) {
    return as_error(channel.error());
  }
  hub.channel = std::move(*channel);
  auto memory = hub.channel->import_region(hub.joined.memory, transport::in(kConnectPatience));
  if (!memory) {
    return as_error(memory.error());
  }
  hub.memory = std::move(*memory);
  return open_queues(hub, static_cast<std::uint32_t>(&hub - hubs_.data()));
}

Result<void> Client::open_queues(Hub& hub, std::uint32_t index) {
  for (std::size_t core = 0; core < map_.loads[index].size(); ++core) {
    Core queues;
    auto pulls = transport::NotificationReader::open(hub.channel, pull_queue(static_cast<int>(core)),
                                                     pull_capacity(map_.loads[index][core]));
    auto pushes = transport::NotificationWriter::open(hub.channel, push_queue(static_cast<int>(core)));
    if (!pulls || !pushes) {
      return as_error(pulls ? pushes.error() : pulls.error());
    }
    queues.pulls.emplace(std::move(*pulls));
    queues.pushes.emplace(std::move(*pushes));
    hub.cores.push_back(std::move(queues));
  }
  return {};
}

WorkerRequest Client::request() const { return {options_.job, options_.nonce, options_.rank, shares_weights_, step_}; }

template <typename Answer, typename Read>
Result<Answer> Client::ask_until_ready(Hub& hub, const std::string& path, const WorkerRequest& request,
                                       const Read& read) {
  const auto deadline = std::chrono::steady_clock::now() + options_.patience;
  while (true) {
    TESSER_ASSIGN_OR_RETURN(const std::string text, hub.control->post(path, to_json(request)));
    TESSER_ASSIGN_OR_RETURN(Answer answer, read(text));
    if (answer.ready) {
      return answer;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      std::string waiting = "the hub";
      if constexpr (requires { answer.waiting_for; }) {
        waiting = answer.waiting_for.empty() ? waiting : answer.waiting_for;
      }
      return failed(fmt::format("job {} has not started within {} s: {} is missing", options_.job,
                                options_.patience.count() / 1000, waiting));
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

Result<void> Client::start() {
  for (Hub& hub : hubs_) {
    TESSER_ASSIGN_OR_RETURN(
        const ConnectedAnswer answer,
        (ask_until_ready<ConnectedAnswer>(hub, "/v1/jobs/connected", request(), read_connected_answer)));
    if (answer.has_inbox) {
      auto inbox = hub.channel->import_region(answer.inbox, transport::in(kConnectPatience));
      if (!inbox) {
        return as_error(inbox.error());
      }
      hub.inbox = std::move(*inbox);
    }
  }
  Hub& first = hubs_.front();
  shares_weights_ = first.memory->mapped() != nullptr && (hubs_.size() == 1 || options_.settings.one_machine);
  if (!is_return_) {
    TESSER_RETURN_IF_ERROR(give_weights_and_state());
  }
  // A worker that returns needs the agreement of all hubs, and any worker that of the last to start.
  for (Hub& hub : hubs_) {
    TESSER_ASSIGN_OR_RETURN(const std::string text, hub.control->post("/v1/jobs/start", to_json(request())));
    TESSER_RETURN_IF_ERROR(read_start_answer(text));
  }
  for (Hub& hub : hubs_) {
    TESSER_RETURN_IF_ERROR((ask_until_ready<StartAnswer>(hub, "/v1/jobs/start", request(), read_start_answer)));
    for (Core& core : hub.cores) {
      bool broken = false;
      const auto connected = [&] {
        const auto pushes = core.pushes->connected();
        const auto pulls = core.pulls->connected();
        broken = !pushes || !pulls;
        return broken || (*pushes && *pulls);
      };
      if (!device_->wait(connected, transport::in(kConnectPatience)) || broken) {
        return failed(fmt::format("the hub at {} has not opened its queues", hub.url));
      }
    }
  }
  weights_ = reinterpret_cast<float*>(shares_weights_ ? first.memory->mapped() : region_->data());
  return {};
}

void Client::set_initial(std::int64_t key, std::span<const float> values) {
  const auto index = static_cast<std::size_t>(key);
  TESSER_CHECK(values.size() == static_cast<std::size_t>(options_.settings.keys[index].elements),
               std::to_string(values.size()));
  std::memcpy(reinterpret_cast<float*>(region_->data()) + map_.key_begin[index], values.data(), values.size_bytes());
}

Result<void> Client::set_initial_state(std::int64_t key, int tensor, std::span<const float> values) {
  const Key& which = options_.settings.keys[static_cast<std::size_t>(key)];
  const int tensors = options_.settings.groups[static_cast<std::size_t>(which.group)].state_tensors();
  if (tensor < 0 || tensor >= tensors || values.size() != static_cast<std::size_t>(which.elements)) {
    return invalid_input(
        fmt::format("tensor '{}' has {} tensors of optimizer state with {} elements; given were {} "
                    "elements for tensor {}",
                    which.name, tensors, which.elements, values.size(), tensor));
  }
  initial_state_.push_back({key, tensor, {values.begin(), values.end()}});
  return {};
}

void Client::set_initial_updates(std::int64_t key, std::int64_t updates) {
  initial_updates_.resize(options_.settings.keys.size());
  initial_updates_[static_cast<std::size_t>(key)] = updates;
}

Result<void> Client::give_weights_and_state() {
  if (options_.rank != 0) {
    return {};
  }
  for (Hub& hub : hubs_) {
    TESSER_RETURN_IF_ERROR(give_initial(hub));
  }
  initial_state_.clear();
  initial_updates_.clear();
  return {};
}

Result<void> Client::give_initial(Hub& hub) {
  const auto index = static_cast<std::uint32_t>(&hub - hubs_.data());
  transport::Completion written;
  const bool all = index == 0 && shares_weights_;
  for (const Chunk& chunk : map_.chunks) {
    if ((all || chunk.hub == index) && !(shares_weights_ && index != 0)) {
      const Strided place = Strided::contiguous(static_cast<std::uint64_t>(chunk.begin) * sizeof(float),
                                                static_cast<std::uint64_t>(chunk.elements) * sizeof(float));
      const auto outcome = hub.channel->write(*region_, place, *hub.memory, place, written);
      if (!outcome) {
        return explain(hub, outcome.error());
      }
    }
  }
  // State goes by way of the gradients' or, if need be, one more region.
  std::vector<std::shared_ptr<transport::MemoryRegion>> kept;
  for (const InitialState& state : initial_state_) {
    auto scratch = device_->allocate(state.values.size() * sizeof(float), {.name = "optimizer state"});
    if (!scratch) {
      return as_error(scratch.error());
    }
    std::memcpy((*scratch)->data(), state.values.data(), state.values.size() * sizeof(float));
    const auto key = static_cast<std::size_t>(state.key);
    for (std::uint32_t number = map_.first_chunk[key]; number < map_.first_chunk[key + 1]; ++number) {
      const Chunk& chunk = map_.chunks[number];
      if (chunk.hub == index) {
        const auto bytes = static_cast<std::uint64_t>(chunk.elements) * sizeof(float);
        const auto from = static_cast<std::uint64_t>(chunk.begin - map_.key_begin[key]) * sizeof(float);
        const auto to = job_layout_.state(state.tensor) + static_cast<std::uint64_t>(chunk.begin) * sizeof(float);
        const auto outcome = hub.channel->write(**scratch, Strided::contiguous(from, bytes), *hub.memory,
                                                Strided::contiguous(to, bytes), written);
        if (!outcome) {
          return explain(hub, outcome.error());
        }
      }
    }
    kept.push_back(std::move(*scratch));
  }
  if (!initial_updates_.empty()) {
    auto scratch = device_->allocate(map_.chunks.size() * sizeof(std::int64_t), {.name = "numbers of updates"});
    if (!scratch) {
      return as_error(scratch.error());
    }
    auto* updates = reinterpret_cast<std::int64_t*>((*scratch)->data());
    for (std::size_t number = 0; number < map_.chunks.size(); ++number) {
      updates[number] = initial_updates_[map_.chunks[number].key];
    }
    const std::uint64_t bytes = map_.chunks.size() * sizeof(std::int64_t);
    const auto outcome = hub.channel->write(**scratch, Strided::contiguous(0, bytes), *hub.memory,
                                            Strided::contiguous(job_layout_.updates(), bytes), written);
    if (!outcome) {
      return explain(hub, outcome.error());
    }
    kept.push_back(std::move(*scratch));
  }
  return flush(hub, written);
}

Result<void> Client::flush(Hub& hub, transport::Completion& completion) {
  if (const auto outcome = hub.channel->flush(completion); !outcome) {
    return explain(hub, outcome.error());
  }
  if (!device_->wait([&] { return completion.done(); }, transport::in(options_.patience))) {
    return failed(fmt::format("the hub at {} does not take what is written to it", hub.url));
  }
  if (const auto outcome = completion.outcome(); !outcome) {
    return explain(hub, outcome.error());
  }
  return {};
}

std::span<std::byte> Client::gradient(std::int64_t key) const {
  const auto index = static_cast<std::size_t>(key);
  const std::size_t width = element_size(options_.settings.wire);
  return {region_->data() + layout_.gradients + static_cast<std::size_t>(map_.key_begin[index]) * width,
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
  return for_chunks_of(key, [&](Hub& hub, Core& core, std::uint32_t number) -> transport::Outcome<void> {
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
    std::memcpy(region_->data() + layout_.gradients + offset, values.data() + begin * row_bytes, bytes);
    const std::uint32_t notification = notice(Notice::kGradient, number);
    if (hub.inbox == nullptr) {
      return core.pushes->notify(notification, transport::Notification::kAlone);
    }
    const Inbox inbox(map_, options_.settings, static_cast<int>(hub.cores.size()));
    const std::uint64_t list_bytes = (1 + next - begin) * sizeof(RowNumber);
    if (bytes != 0) {
      TESSER_TRANSPORT_RETURN_IF_FAILED(hub.channel->write(*region_,
                                                           Strided::contiguous(layout_.gradients + offset, bytes),
                                                           *hub.inbox, Strided::contiguous(offset, bytes), sent_));
    }
    TESSER_TRANSPORT_RETURN_IF_FAILED(hub.channel->write(
        *region_, Strided::contiguous(list, list_bytes), *hub.inbox,
        Strided::contiguous(inbox.rows + static_cast<std::uint64_t>(chunk.rows_begin) * sizeof(RowNumber), list_bytes),
        sent_));
    return core.pushes->notify(notification);  // behind both writes
  });
}

Result<void> Client::push(std::int64_t key, Notice kind) {
  pending_[static_cast<std::size_t>(key)].fetch_add(map_.chunks_of(static_cast<std::uint32_t>(key)),
                                                    std::memory_order_relaxed);
  const std::size_t width = element_size(options_.settings.wire);
  return for_chunks_of(key, [&](Hub& hub, Core& core, std::uint32_t number) {
    const std::uint32_t notification = notice(kind, number);
    if (hub.inbox == nullptr || kind == Notice::kNone) {
      return core.pushes->notify(notification, transport::Notification::kAlone);
    }
    const Chunk& chunk = map_.chunks[number];
    const std::uint64_t offset = static_cast<std::uint64_t>(chunk.begin) * width;
    const std::uint64_t bytes = static_cast<std::uint64_t>(chunk.elements) * width;
    return core.pushes->write_and_notify(*region_, Strided::contiguous(layout_.gradients + offset, bytes), *hub.inbox,
                                         Strided::contiguous(offset, bytes), notification, sent_);
  });
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
      auto& pushes = *hub.cores[core].pushes;
      const auto outcome = hub.inbox == nullptr
                               ? pushes.notify(number, transport::Notification::kAlone)
                               : pushes.write_and_notify(*region_, source, *hub.inbox, target, number, sent_);
      if (!outcome) {
        return explain(hub, outcome.error());
      }
    }
  }
  ++step_;
  return {};
}

Result<void> Client::take_pulls() {
  for (Hub& hub : hubs_) {
    for (Core& core : hub.cores) {
      while (true) {
        const auto number = core.pulls->poll();
        if (!number) {
          return explain(hub, number.error());
        }
        if (!*number) {
          break;
        }
        const std::uint32_t chunk = notice_chunk(**number);
        if (chunk >= map_.chunks.size()) {
          return failed(fmt::format("the hub at {} sent a notification that means nothing", hub.url));
        }
        pending_[map_.chunks[chunk].key].fetch_sub(1, std::memory_order_relaxed);
      }
    }
  }
  return {};
}

Result<bool> Client::is_current(std::int64_t key) {
  const auto& pending = pending_[static_cast<std::size_t>(key)];
  if (pending.load(std::memory_order_relaxed) == 0) {
    return true;
  }
  TESSER_RETURN_IF_ERROR(take_pulls());
  return pending.load(std::memory_order_relaxed) == 0;
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
  while (true) {
    TESSER_ASSIGN_OR_RETURN(const bool current, is_current(key));
    const auto left = deadline - std::chrono::steady_clock::now();
    if (current || left.count() <= 0) {
      return current;
    }
    device_->wait(
        [this] {
          return std::any_of(hubs_.begin(), hubs_.end(), [](const Hub& hub) {
            return hub.channel->failed() || std::any_of(hub.cores.begin(), hub.cores.end(),
                                                        [](const Core& core) { return core.pulls->ready(); });
          });
        },
        transport::in(std::min<std::chrono::nanoseconds>(kLook, left)));
  }
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
  auto scratch = device_->allocate(values.size_bytes(), {.name = "optimizer state"});
  if (!scratch) {
    return as_error(scratch.error());
  }
  transport::Completion read;
  TESSER_RETURN_IF_ERROR(for_chunks_of(key, [&](Hub& hub, Core&, std::uint32_t number) {
    const Chunk& chunk = map_.chunks[number];
    const auto bytes = static_cast<std::uint64_t>(chunk.elements) * sizeof(float);
    const auto to = static_cast<std::uint64_t>(chunk.begin - map_.key_begin[index]) * sizeof(float);
    const auto from = job_layout_.state(tensor) + static_cast<std::uint64_t>(chunk.begin) * sizeof(float);
    return hub.channel->read(*hub.memory, Strided::contiguous(from, bytes), **scratch, Strided::contiguous(to, bytes),
                             read);
  }));
  if (!device_->wait([&] { return read.done(); }, transport::in(options_.patience))) {
    return failed(fmt::format("the state of tensor '{}' has not come from the hub", which.name));
  }
  if (const auto outcome = read.outcome(); !outcome) {
    return as_error(outcome.error());
  }
  std::memcpy(values.data(), (*scratch)->data(), values.size_bytes());
  return {};
}

Result<std::int64_t> Client::read_updates(std::int64_t key) {
  TESSER_RETURN_IF_ERROR(fetch_state());
  // All chunks of a tensor have had the same.
  const std::uint32_t chunk = map_.first_chunk[static_cast<std::size_t>(key)];
  Hub& hub = hubs_[map_.chunks[chunk].hub];
  auto scratch = device_->allocate(sizeof(std::int64_t), {.name = "number of updates"});
  if (!scratch) {
    return as_error(scratch.error());
  }
  transport::Completion read;
  const auto outcome =
      hub.channel->read(*hub.memory, Strided::contiguous(job_layout_.updates(chunk), sizeof(std::int64_t)), **scratch,
                        Strided::contiguous(0, sizeof(std::int64_t)), read);
  if (!outcome) {
    return explain(hub, outcome.error());
  }
  TESSER_RETURN_IF_ERROR(flush(hub, read));
  return *reinterpret_cast<const std::int64_t*>((*scratch)->data());
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

tl::unexpected<Error> Client::explain(Hub& hub, const transport::Failure& failure) {
  const std::lock_guard lock(explaining_);  // the thread that pushes and the one that waits may both fail
  if (const auto answer = hub.control->post("/v1/jobs/status", to_json(request()))) {
    if (const auto status = read_job_status(*answer); status && !status->reason.empty()) {
      return failed(fmt::format("job {} has failed at the hub: {}", options_.job, status->reason));
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
