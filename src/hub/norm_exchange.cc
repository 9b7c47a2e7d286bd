#include "hub/norm_exchange.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

namespace tesser::hub {
namespace {

constexpr int kBits = 22;
constexpr std::uint32_t kCapacity = 16;

std::string queue_name(std::uint32_t from, std::uint32_t to) { return fmt::format("norm, hub {} to {}", from, to); }

}  // namespace

NormExchange::NormExchange(std::uint32_t hub, std::size_t hubs, std::function<void(double)> publish,
                           std::function<void(const std::string&)> broken)
    : hub_(hub), others_(hub == 0 ? hubs - 1 : 1), publish_(std::move(publish)), broken_(std::move(broken)) {}

Result<void> NormExchange::add(std::uint32_t other, const std::shared_ptr<transport::Channel>& channel) {
  TESSER_ASSIGN_OR_RETURN(auto queues,
                          QueuePair::open(channel, queue_name(other, hub_), queue_name(hub_, other), kCapacity));
  const std::lock_guard lock(mutex_);
  links_.emplace(other, Link{other, std::move(queues), channel, 0, 0, false, std::nullopt});
  return {};
}

bool NormExchange::is_linked() const {
  const std::lock_guard lock(mutex_);
  return links_.size() == others_;
}

Result<void> NormExchange::finish(transport::Device& device, transport::Deadline deadline) {
  const std::lock_guard lock(mutex_);
  for (auto& [hub, link] : links_) {
    TESSER_RETURN_IF_ERROR(link.queues.wait_until_open(device, deadline, fmt::format("hub {}", link.hub)));
  }
  return {};
}

void NormExchange::give(double squares) {
  const std::lock_guard lock(mutex_);
  if (hub_ != 0) {
    return send(links_.begin()->second, squares);
  }
  own_ = squares;
  add_up();
}

void NormExchange::send(Link& link, double number) {
  auto bits = std::bit_cast<std::uint64_t>(number);
  for (int part = 0; part < kParts; ++part, bits >>= kBits) {
    const auto value = static_cast<std::uint32_t>(bits & ((std::uint64_t{1} << kBits) - 1));
    if (const auto sent = link.queues.sends.notify(value, transport::Notification::kAlone); !sent) {
      return lose(link, sent.error().message);
    }
  }
}

void NormExchange::lose(Link& link, const std::string& reason) {
  link.is_lost = true;
  broken_(fmt::format("hub {} is lost: {}", link.hub, reason));
}

bool NormExchange::has_news() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) {
    const Link& link = entry.second;
    return !link.is_lost && (link.queues.arrivals.ready() || link.channel->failed());
  });
}

bool NormExchange::take() {
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (auto& [hub, link] : links_) {
    if (link.is_lost) {
      continue;
    }
    const auto number = link.queues.arrivals.poll();
    if (!number) {
      lose(link, number.error().message);
      continue;
    }
    if (!*number) {
      continue;
    }
    any = true;
    link.bits |= std::uint64_t{**number} << (kBits * link.parts);
    if (++link.parts < kParts) {
      continue;
    }
    const auto value = std::bit_cast<double>(link.bits);
    link.bits = 0;
    link.parts = 0;
    if (hub_ != 0) {
      publish_(value);
    } else {
      link.squares = value;
      add_up();
    }
  }
  return any;
}

void NormExchange::add_up() {
  if (!own_ ||
      !std::all_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second.squares.has_value(); })) {
    return;
  }
  double total = *own_;
  own_.reset();
  for (auto& [hub, link] : links_) {
    total += *link.squares;
    link.squares.reset();
  }
  for (auto& [hub, link] : links_) {
    send(link, total);
  }
  publish_(total);
}

}  // namespace tesser::hub
