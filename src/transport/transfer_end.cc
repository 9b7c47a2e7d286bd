#include "transport/transfer_end.h"

#include <utility>

#include <fmt/format.h>

#include "transport/device_core.h"
#include "transport/peer_path.h"

namespace tesser::transport {
namespace {

constexpr std::size_t kLongestName = 1000;

Role counterpart(Role role) {
  switch (role) {
    case Role::kStaticSender:
      return Role::kStaticReceiver;
    case Role::kStaticReceiver:
      return Role::kStaticSender;
    case Role::kDynamicSender:
      return Role::kDynamicReceiver;
    case Role::kDynamicReceiver:
      return Role::kDynamicSender;
    case Role::kNotificationWriter:
      return Role::kNotificationReader;
    case Role::kNotificationReader:
      return Role::kNotificationWriter;
  }
  return role;
}

}  // namespace

Outcome<TransferEnd> TransferEnd::open(std::shared_ptr<Channel> channel, Announcement own) {
  if (own.name.empty() || own.name.size() > kLongestName) {
    return failure(FailureKind::kInvalidArgument, channel->peer(),
                   fmt::format("a transfer's name has 1 to {} bytes, not {}", kLongestName, own.name.size()));
  }
  if (const auto reason = channel->failure()) {
    return tl::unexpected<Failure>(*reason);
  }
  SignalArea& signals = channel->core().signals();
  const std::uint32_t ring_bytes = own.ring_words * static_cast<std::uint32_t>(sizeof(std::uint64_t));
  TESSER_TRANSPORT_ASSIGN(own.signal, signals.allocate(ring_bytes == 0 ? SignalArea::kWordBytes : ring_bytes));
  if (own.role == Role::kDynamicReceiver) {
    auto block = signals.allocate_block();
    if (!block) {
      signals.free(own.signal);
      return tl::unexpected<Failure>(std::move(block.error()));
    }
    own.block = *block;
  }
  own.nonce = static_cast<std::uint32_t>(random_nonce()) | 1;  // not 0
  if (ring_bytes == 0) {
    signals.expect(own.signal, own.nonce);
  } else {
    signals.expect_ring(own.signal, ring_bytes, own.nonce);
  }
  channel->announce(own);
  return TransferEnd(std::move(channel), std::move(own));
}

TransferEnd::~TransferEnd() {
  if (channel_ == nullptr) {
    return;
  }
  std::vector<std::uint32_t> offsets{own_.signal};
  if (own_.role == Role::kDynamicReceiver) {
    offsets.push_back(own_.block);
  }
  connected();  // the other end may have come meanwhile and signal
  channel_->withdraw(own_, other_ ? other_->nonce : 0, last_signal_, std::move(offsets));
}

bool TransferEnd::connected() {
  if (other_) [[likely]] {
    return true;
  }
  other_ = channel_->take_announcement(static_cast<std::uint32_t>(counterpart(own_.role)), own_.name);
  return other_.has_value();
}

bool TransferEnd::has_arrived(std::uint32_t sequence) const {
  return load_signal(channel_->core().signals().data(), own_.signal) == awaited(sequence);
}

Outcome<void> TransferEnd::signal(std::uint32_t sequence) {
  if (channel_->failed()) {
    return tl::unexpected<Failure>(*channel_->failure());
  }
  channel_->peer_path().notify(channel_->peer_signals(), other_->signal, next_signal(sequence), Notification::kAlone,
                               channel_->background());
  return {};
}

bool TransferEnd::other_has(std::uint32_t offset, std::uint64_t bytes) const {
  return offset % SignalArea::kWordBytes == 0 && offset + bytes <= channel_->peer_signals().bytes();
}

Outcome<bool> TransferEnd::not_yet(std::uint32_t sequence) const {
  if (auto reason = ended(sequence)) {
    return tl::unexpected<Failure>(std::move(*reason));
  }
  return false;
}

std::optional<Failure> TransferEnd::ended(std::uint32_t sequence, std::uint32_t window) const {
  if (channel_->failed()) {
    return channel_->failure();
  }
  const auto last = other_ ? channel_->withdrawn(other_->nonce) : std::nullopt;
  const auto is_under_way = [&](std::uint64_t signal) {
    return signal >> 32 == own_.nonce && static_cast<std::uint32_t>(signal) - sequence < window;
  };
  if (last && !is_under_way(*last)) {
    return Failure{FailureKind::kPeerClosed, peer(),
                   fmt::format("{} has ended its side of transfer '{}'", peer(), own_.name)};
  }
  return std::nullopt;
}

}  // namespace tesser::transport
