#include "hub/racks.h"

#include <utility>

#include <fmt/format.h>

#include "control/control_http.h"
#include "hub/wire.h"

namespace tesser::hub {
namespace {

using transport::Strided;

constexpr std::chrono::seconds kPatience{20};
// For a whole model to reach another rack.
constexpr std::chrono::seconds kModelPatience{120};

std::string queue_name(std::size_t core, std::int64_t from, std::int64_t to) {
  return fmt::format("rack {} to {}, core {}", from, to, core);
}

}  // namespace

Racks::Racks(RackPlace place, transport::Device& device, std::shared_ptr<transport::MemoryRegion> memory,
             std::shared_ptr<transport::MemoryRegion> inbox)
    : place_(std::move(place)), device_(device), memory_(std::move(memory)), inbox_(std::move(inbox)) {}

Racks::~Racks() = default;

Result<control::ControlClient*> Racks::control_of(std::int64_t rack) {
  auto& control = controls_[rack];
  if (control == nullptr) {
    TESSER_ASSIGN_OR_RETURN(control, control::ControlClient::open(place_.urls[static_cast<std::size_t>(rack)],
                                                                  place_.token, kPatience, "hub"));
  }
  return control.get();
}

Result<void> Racks::look() {
  for (std::int64_t rack = place_.rack + 1; rack < static_cast<std::int64_t>(place_.urls.size()); ++rack) {
    if (links_.contains(rack)) {
      continue;
    }
    TESSER_ASSIGN_OR_RETURN(control::ControlClient * control, control_of(rack));
    RackRequest request{place_.job,        place_.nonce,     place_.rack,
                        memory_->handle(), inbox_->handle(), static_cast<std::int64_t>(place_.cores.size())};
    const auto text = control->post("/v1/jobs/rack", to_json(request));
    if (!text) {
      // It may not run yet, or not know the job yet.
      if (text.error().code == ErrorCode::kNotFound) {
        continue;
      }
      return tl::unexpected<Error>(text.error());
    }
    TESSER_ASSIGN_OR_RETURN(const RackAnswer answer, read_rack_answer(*text));
    if (!answer.ready) {
      continue;
    }
    TESSER_RETURN_IF_ERROR(place_.check_hub(answer.address));
    TESSER_ASSIGN_OR_RETURN(auto channel, as_result(device_.connect(answer.address, transport::in(kPatience))));
    TESSER_ASSIGN_OR_RETURN(RackEnd end, import(rack, std::move(channel), answer.memory, answer.inbox));
    TESSER_RETURN_IF_ERROR(open_links(std::move(end)));
  }
  return {};
}

Result<RackAnswer> Racks::introduce(const RackRequest& request) {
  if (request.rack < 0 || request.rack >= place_.rack) {
    return invalid_input(fmt::format("rack {} does not connect to rack {}", request.rack, place_.rack));
  }
  if (request.cores != static_cast<std::int64_t>(place_.cores.size()) || request.memory.bytes != memory_->bytes() ||
      request.inbox.bytes != inbox_->bytes()) {
    return invalid_input(
        fmt::format("the hubs of racks {} and {} differ in cores or settings: give every worker the "
                    "same settings, and every hub of a place the same number of cores",
                    request.rack, place_.rack));
  }
  introduced_[request.rack] = request;
  return RackAnswer{true, device_.address(), memory_->handle(), inbox_->handle()};
}

Result<bool> Racks::take_channel(const std::shared_ptr<transport::Channel>& channel) {
  for (const auto& [rack, request] : introduced_) {
    if (request.memory.device == channel->peer_nonce() && !links_.contains(rack)) {
      TESSER_ASSIGN_OR_RETURN(RackEnd end, import(rack, channel, request.memory, request.inbox));
      TESSER_RETURN_IF_ERROR(open_links(std::move(end)));
      return true;
    }
  }
  return false;
}

Result<RackEnd> Racks::import(std::int64_t rack, std::shared_ptr<transport::Channel> channel,
                              const transport::RegionHandle& memory, const transport::RegionHandle& inbox) {
  RackEnd end;
  end.rack = rack;
  TESSER_ASSIGN_OR_RETURN(end.memory, as_result(channel->import_region(memory, transport::in(kPatience))));
  TESSER_ASSIGN_OR_RETURN(end.inbox, as_result(channel->import_region(inbox, transport::in(kPatience))));
  end.channel = std::move(channel);
  return end;
}

Result<void> Racks::open_links(RackEnd end) {
  const auto shared = std::make_shared<const RackEnd>(std::move(end));
  std::vector<RackLink> links;
  for (std::size_t core = 0; core < place_.cores.size(); ++core) {
    TESSER_ASSIGN_OR_RETURN(
        auto queues, QueuePair::open(shared->channel, queue_name(core, shared->rack, place_.rack),
                                     queue_name(core, place_.rack, shared->rack), push_capacity(place_.cores[core])));
    links.push_back({shared, std::move(queues)});
  }
  for (RackLink& link : links) {
    TESSER_RETURN_IF_ERROR(link.queues.wait_until_open(device_, transport::in(kPatience),
                                                       fmt::format("the hub of rack {}", shared->rack)));
  }
  ends_[shared->rack] = shared;
  links_[shared->rack] = std::move(links);
  return {};
}

std::string Racks::missing() const {
  std::string text;
  for (std::int64_t rack = 0; rack < static_cast<std::int64_t>(place_.urls.size()); ++rack) {
    if (rack != place_.rack && !links_.contains(rack)) {
      text += fmt::format("{}rack {}", text.empty() ? "" : ", ", rack);
    }
  }
  return text;
}

std::vector<RackLink> Racks::take_links(std::size_t core) {
  std::vector<RackLink> taken;
  for (auto& [rack, links] : links_) {
    taken.push_back(std::move(links[core]));
  }
  return taken;
}

Result<void> Racks::give_memory() {
  for (const auto& [rack, end] : ends_) {
    transport::Completion sent;
    const Strided all = Strided::contiguous(0, memory_->bytes());
    TESSER_RETURN_IF_ERROR(as_result(end->channel->write(*memory_, all, *end->memory, all, sent)));
    TESSER_RETURN_IF_ERROR(as_result(end->channel->flush(sent)));
    if (!device_.wait([&] { return sent.done(); }, transport::in(kModelPatience))) {
      return failed(fmt::format("the weights did not reach rack {} in time", rack));
    }
    TESSER_RETURN_IF_ERROR(as_result(sent.outcome()));
    TESSER_ASSIGN_OR_RETURN(control::ControlClient * control, control_of(rack));
    WorkerRequest request;
    request.job = place_.job;
    request.nonce = place_.nonce;
    TESSER_RETURN_IF_ERROR(control->post("/v1/jobs/rack-weights", to_json(request)));
  }
  return {};
}

Result<void> Racks::fetch(const ChunkMap& map, const JobMemory& layout) {
  transport::Completion read;
  for (std::uint32_t number = 0; number < map.chunks.size(); ++number) {
    const Chunk& chunk = map.chunks[number];
    const std::int64_t owner = owner_rack(number, static_cast<std::int64_t>(place_.urls.size()));
    if (chunk.hub != static_cast<std::uint32_t>(place_.hub) || owner == place_.rack) {
      continue;
    }
    const RackEnd& end = *ends_.at(owner);
    std::vector<Strided> places{Strided::contiguous(layout.updates(number), sizeof(std::int64_t))};
    for (int tensor = 0; tensor < layout.state_tensors; ++tensor) {
      places.push_back(
          Strided::contiguous(layout.state(tensor) + static_cast<std::uint64_t>(chunk.begin) * sizeof(float),
                              static_cast<std::uint64_t>(chunk.elements) * sizeof(float)));
    }
    for (const Strided& place : places) {
      TESSER_RETURN_IF_ERROR(as_result(end.channel->read(*end.memory, place, *memory_, place, read)));
    }
  }
  if (!device_.wait([&] { return read.done(); }, transport::in(kModelPatience))) {
    return failed("the state of the optimizer did not come from other racks in time");
  }
  return as_result(read.outcome());
}

}  // namespace tesser::hub
