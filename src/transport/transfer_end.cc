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
  TESSER_TRANSPORT_ASSIGN(own.signal, signals.allocate(SignalArea::kWordBytes));
  if (own.role == Role::kDynamicReceiver) {
    auto block = signals.allocate(SignalArea::kBlockBytes);
    if (!block) {
      signals.free(own.signal);
      return tl::unexpected<Failure>(std::move(block.error()));
    }
    own.block = *block;
  }
  own.nonce = static_cast<std::uint32_t>(random_nonce()) | 1;  // not 0
  signals.expect(own.signal, own.nonce);
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

std::optional<Failure> TransferEnd::ended(std::uint32_t sequence) const {
  if (channel_->failed()) {
    return channel_->failure();
  }
  const auto last = other_ ? channel_->withdrawn(other_->nonce) : std::nullopt;
  if (last && *last != awaited(sequence)) {
    return Failure{FailureKind::kPeerClosed, peer(),
                   fmt::format("{} has ended its side of transfer '{}'", peer(), own_.name)};
  }
  return std::nullopt;
}

}  // namespace tesser::transport
