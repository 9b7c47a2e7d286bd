// How a worker joins its job and starts. The steps are in client.cc.
#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "control/control_http.h"
#include "hub/client.h"
#include "hub/huge_pages.h"
#include "hub/topology.h"

namespace tesser::hub {
namespace {

using transport::Strided;

constexpr std::chrono::seconds kConnectPatience{20};
// For the answer to a request; the last worker to start waits for weights to be given to all.
constexpr std::chrono::seconds kAnswerPatience{60};
// Between two requests for the same thing.
constexpr std::chrono::milliseconds kAskAgain{10};

// What GET /v1/hub answers.
Result<std::int64_t> read_cores(const std::string& text) {
  return read_json_object<std::int64_t>(
      text, "answer", [](JsonReader& reader, std::int64_t& cores) { cores = reader.integer("cores", 1); });
}

}  // namespace

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

Result<bool> Client::waits_at_once() const {
  auto threads = options_.settings.replicas;
  for (std::size_t index = 0; index < hubs_.size(); ++index) {
    TESSER_ASSIGN_OR_RETURN(const std::string host, hubs_[index].control->own_host());
    if (options_.through_network || hubs_[index].url.find("://" + host + ":") == std::string::npos) {
      return false;
    }
    threads += static_cast<std::int64_t>(map_.loads[index].size());
  }
  return !has_processors_for(threads);
}

Result<void> Client::open_hubs() {
  transport::DeviceOptions options;
  options.name = worker_name(options_.rank);
  options.run = run_of(options_.job, options_.nonce);
  options.paths = options_.through_network ? transport::Paths::kNetworkOnly : transport::Paths::kAny;
  TESSER_ASSIGN_OR_RETURN(const std::string host, hubs_.front().control->own_host());
  options.listen = host.find(':') == std::string::npos ? host + ":0" : "[" + host + "]:0";
  TESSER_ASSIGN_OR_RETURN(const bool at_once, waits_at_once());
  if (at_once) {
    options.spin = std::chrono::microseconds(0);
  }
  std::vector<ChunkMap::Load> cores;
  for (const auto& hub : map_.loads) {
    cores.insert(cores.end(), hub.begin(), hub.end());
  }
  options.signal_bytes = signal_bytes(cores, 1);
  TESSER_ASSIGN_OR_RETURN(device_, as_result(transport::Device::open(std::move(options))));
  TESSER_ASSIGN_OR_RETURN(
      region_, as_result(device_->allocate(
                   layout_.bytes, {.name = "weights and gradients of " + worker_name(options_.rank),
                                   .huge_pages = pages_for_gradients(options_.huge_pages, options_.settings)})));
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
  TESSER_ASSIGN_OR_RETURN(hub.channel,
                          as_result(device_->connect(hub.joined.address, transport::in(kConnectPatience))));
  TESSER_ASSIGN_OR_RETURN(hub.memory,
                          as_result(hub.channel->import_region(hub.joined.memory, transport::in(kConnectPatience))));
  return open_queues(hub, static_cast<std::uint32_t>(&hub - hubs_.data()));
}

Result<void> Client::open_queues(Hub& hub, std::uint32_t index) {
  for (std::size_t core = 0; core < map_.loads[index].size(); ++core) {
    TESSER_ASSIGN_OR_RETURN(
        auto queues, QueuePair::open(hub.channel, pull_queue(static_cast<int>(core)),
                                     push_queue(static_cast<int>(core)), pull_capacity(map_.loads[index][core])));
    queues.sends.wake_on_request();
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
      TESSER_ASSIGN_OR_RETURN(hub.inbox,
                              as_result(hub.channel->import_region(answer.inbox, transport::in(kConnectPatience))));
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
    for (QueuePair& core : hub.cores) {
      TESSER_RETURN_IF_ERROR(
          core.wait_until_open(*device_, transport::in(kConnectPatience), fmt::format("the hub at {}", hub.url)));
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
  // State is written from regions of its own, which stay until all of it is there.
  std::vector<std::shared_ptr<transport::MemoryRegion>> kept;
  for (const InitialState& state : initial_state_) {
    TESSER_ASSIGN_OR_RETURN(
        auto scratch, as_result(device_->allocate(state.values.size() * sizeof(float), {.name = "optimizer state"})));
    std::memcpy(scratch->data(), state.values.data(), state.values.size() * sizeof(float));
    const auto key = static_cast<std::size_t>(state.key);
    for (std::uint32_t number = map_.first_chunk[key]; number < map_.first_chunk[key + 1]; ++number) {
      const Chunk& chunk = map_.chunks[number];
      if (chunk.hub == index) {
        const auto bytes = static_cast<std::uint64_t>(chunk.elements) * sizeof(float);
        const auto from = static_cast<std::uint64_t>(chunk.begin - map_.key_begin[key]) * sizeof(float);
        const auto to = job_layout_.state(state.tensor) + static_cast<std::uint64_t>(chunk.begin) * sizeof(float);
        const auto outcome = hub.channel->write(*scratch, Strided::contiguous(from, bytes), *hub.memory,
                                                Strided::contiguous(to, bytes), written);
        if (!outcome) {
          return explain(hub, outcome.error());
        }
      }
    }
    kept.push_back(std::move(scratch));
  }
  if (!initial_updates_.empty()) {
    TESSER_ASSIGN_OR_RETURN(auto scratch, as_result(device_->allocate(map_.chunks.size() * sizeof(std::int64_t),
                                                                      {.name = "numbers of updates"})));
    auto* updates = reinterpret_cast<std::int64_t*>(scratch->data());
    for (std::size_t number = 0; number < map_.chunks.size(); ++number) {
      updates[number] = initial_updates_[map_.chunks[number].key];
    }
    const std::uint64_t bytes = map_.chunks.size() * sizeof(std::int64_t);
    const auto outcome = hub.channel->write(*scratch, Strided::contiguous(0, bytes), *hub.memory,
                                            Strided::contiguous(job_layout_.updates(), bytes), written);
    if (!outcome) {
      return explain(hub, outcome.error());
    }
    kept.push_back(std::move(scratch));
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

}  // namespace tesser::hub
