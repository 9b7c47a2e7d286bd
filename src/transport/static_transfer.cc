#include "transport/static_transfer.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "transport/device_core.h"

namespace tesser::transport {
namespace {

Outcome<std::uint64_t> bytes_of(const TensorType& type, const std::string& name, const std::string& peer) {
  const auto bytes = checked_bytes(type.dtype, type.shape);
  if (!bytes) {
    return failure(FailureKind::kInvalidArgument, peer,
                   fmt::format("transfer '{}' with {}: {} is no tensor", name, peer, shape_text(type.shape)));
  }
  return static_cast<std::uint64_t>(*bytes);
}

Outcome<void> check_same_type(const TransferEnd& end) {
  const Announcement& own = end.own();
  const Announcement& other = end.other();
  if (own.dtype != other.dtype || own.shape != other.shape) {
    return failure(FailureKind::kTypeMismatch, end.peer(),
                   fmt::format("transfer '{}': {} here and {} at {}", own.name, type_text(own.dtype, own.shape),
                               type_text(other.dtype, other.shape), end.peer()));
  }
  return {};
}

}  // namespace

// While it exists, sleepers of the device look again every millisecond.
class StaticReceiver::Unsignalled {
 public:
  explicit Unsignalled(DeviceCore& core) : core_(core) { core_.add_unsignalled(1); }
  Unsignalled(const Unsignalled&) = delete;
  Unsignalled& operator=(const Unsignalled&) = delete;
  ~Unsignalled() { core_.add_unsignalled(-1); }

 private:
  DeviceCore& core_;
};

StaticReceiver::StaticReceiver(TransferEnd end, std::shared_ptr<MemoryRegion> region, std::uint32_t first_sequence)
    : end_(std::move(end)), region_(std::move(region)), sequence_(first_sequence - 1) {}
StaticReceiver::StaticReceiver(StaticReceiver&& other) noexcept = default;
StaticReceiver::~StaticReceiver() = default;

Outcome<StaticReceiver> StaticReceiver::open(std::shared_ptr<Channel> channel, std::string name, const TensorType& type,
                                             std::shared_ptr<MemoryRegion> region, Strided layout,
                                             std::uint32_t first_sequence) {
  TESSER_TRANSPORT_ASSIGN(const std::uint64_t bytes, bytes_of(type, name, channel->peer()));
  const auto end = layout.checked_end();
  if (!end || *end > region->bytes() || layout.bytes() != bytes) {
    return failure(
        FailureKind::kInvalidArgument, channel->peer(),
        fmt::format("transfer '{}' with {}: its buffer has {} bytes up to {} of a region of {}, and {} are needed",
                    name, channel->peer(), layout.bytes(), end.value_or(0), region->bytes(), bytes));
  }
  Announcement own;
  own.role = Role::kStaticReceiver;
  own.name = std::move(name);
  own.first_sequence = first_sequence;
  own.dtype = type.dtype;
  own.shape = type.shape;
  own.region = region->handle().region;
  own.layout = std::move(layout);
  TESSER_TRANSPORT_ASSIGN(TransferEnd transfer, TransferEnd::open(std::move(channel), std::move(own)));
  return StaticReceiver(std::move(transfer), std::move(region), first_sequence);
}

Outcome<bool> StaticReceiver::connected() {
  if (agreed_) [[likely]] {
    return true;
  }
  if (!end_.connected()) {
    return end_.not_yet(sequence_);
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(check_same_type(end_));
  if ((end_.other().flags & kTailFlagged) != 0 && end_.channel().path().path == Path::kUcx) {
    unsignalled_ = std::make_unique<Unsignalled>(end_.channel().core());
  }
  agreed_ = true;
  return true;
}

void StaticReceiver::grant() {
  TESSER_CHECK(grant_ == Grant::kNone, "transfer '" + end_.own().name + "' was granted before");
  ++sequence_;
  grant_ = Grant::kUnsent;
  if (agreed_ && end_.signal(sequence_)) {  // a failure of the channel shows at the next poll
    grant_ = Grant::kSent;
  }
}

Outcome<bool> StaticReceiver::poll() {
  if (grant_ == Grant::kSent) [[likely]] {
    if (end_.has_arrived(sequence_)) {
      grant_ = Grant::kNone;
      return true;
    }
    auto reason = end_.ended(sequence_);
    if (!reason) {
      return false;
    }
    // What had arrived before the end is good.
    if (end_.has_arrived(sequence_)) {
      grant_ = Grant::kNone;
      return true;
    }
    return tl::unexpected<Failure>(std::move(*reason));
  }
  TESSER_TRANSPORT_ASSIGN(const bool both, connected());
  if (both && grant_ == Grant::kUnsent) {
    TESSER_TRANSPORT_RETURN_IF_FAILED(end_.signal(sequence_));
    grant_ = Grant::kSent;
  }
  return end_.not_yet(sequence_);
}

Outcome<StaticSender> StaticSender::open(std::shared_ptr<Channel> channel, std::string name, const TensorType& type,
                                         Notification order) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(bytes_of(type, name, channel->peer()));
  Announcement own;
  own.role = Role::kStaticSender;
  own.flags = order == Notification::kTailFlag ? kTailFlagged : 0;
  own.name = std::move(name);
  own.dtype = type.dtype;
  own.shape = type.shape;
  TESSER_TRANSPORT_ASSIGN(TransferEnd end, TransferEnd::open(std::move(channel), std::move(own)));
  return StaticSender(std::move(end), order);
}

Outcome<bool> StaticSender::connected() {
  if (target_ != nullptr) [[likely]] {
    return true;
  }
  if (!end_.connected()) {
    return end_.not_yet(sequence_);
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(check_same_type(end_));
  const Announcement& other = end_.other();
  // Regions are published on the same connection before the announcements that name them.
  auto region = end_.channel().region(other.region);
  const auto end = other.layout.checked_end();
  const auto bytes = checked_bytes(other.dtype, other.shape);
  if (region == nullptr || !end || *end > region->bytes() ||
      other.layout.bytes() != static_cast<std::uint64_t>(bytes.value_or(-1)) ||
      !end_.other_has(other.signal, SignalArea::kWordBytes)) {
    return failure(
        FailureKind::kProtocol, end_.peer(),
        fmt::format("{} offers a buffer for transfer '{}' that is not in its region", end_.peer(), other.name));
  }
  target_ = std::move(region);
  sequence_ = other.first_sequence;
  return true;
}

Outcome<bool> StaticSender::can_send() {
  TESSER_TRANSPORT_ASSIGN(const bool both, connected());
  if (!both) {
    return false;
  }
  // A credit from before the end of the channel or of the receiver is worth nothing.
  if (auto reason = end_.ended(sequence_ + 1)) {
    return tl::unexpected<Failure>(std::move(*reason));
  }
  return end_.has_arrived(sequence_);
}

Outcome<bool> StaticSender::try_send(const MemoryRegion& from, const Strided& source, Completion& completion) {
  return try_send(from.span(), source, completion);
}

Outcome<bool> StaticSender::try_send(std::span<const std::byte> from, const Strided& source, Completion& completion) {
  TESSER_TRANSPORT_ASSIGN(const bool granted, can_send());
  if (!granted) {
    return false;
  }
  const auto end = source.checked_end();
  if (!end || *end > from.size() || source.bytes() != end_.other().layout.bytes()) {
    return failure(FailureKind::kInvalidArgument, end_.peer(),
                   fmt::format("transfer '{}' to {} has {} bytes; the source has {} up to {} of {} bytes of memory",
                               end_.own().name, end_.peer(), end_.other().layout.bytes(), source.bytes(),
                               end.value_or(0), from.size()));
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(end_.channel().write_and_notify(from.data(), source, *target_, end_.other().layout,
                                                                    end_.other().signal, end_.next_signal(sequence_),
                                                                    order_, completion));
  ++sequence_;
  return true;
}

}  // namespace tesser::transport
