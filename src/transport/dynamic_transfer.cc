#include "transport/dynamic_transfer.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "transport/device_core.h"

namespace tesser::transport {
namespace {

// As it lies in the receiver's signal area.
struct MetadataBlock {
  std::uint32_t dtype;
  std::uint32_t rank;
  std::int64_t dimensions[kMostDynamicDimensions];
  std::uint32_t region;
  std::uint32_t zero;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t reserved[4];
};
static_assert(sizeof(MetadataBlock) == SignalArea::kBlockBytes);

}  // namespace

Outcome<DynamicSender> DynamicSender::open(std::shared_ptr<Channel> channel, std::string name,
                                           std::shared_ptr<MemoryRegion> region) {
  Announcement own;
  own.role = Role::kDynamicSender;
  own.name = std::move(name);
  own.region = region->handle().region;
  TESSER_TRANSPORT_ASSIGN(TransferEnd end, TransferEnd::open(std::move(channel), std::move(own)));
  return DynamicSender(std::move(end), std::move(region));
}

Outcome<bool> DynamicSender::connected() {
  if (checked_) [[likely]] {
    return true;
  }
  if (!end_.connected()) {
    return end_.not_yet(sequence_);
  }
  const Announcement& other = end_.other();
  if (!end_.other_has(other.signal, SignalArea::kWordBytes) || !end_.other_has(other.block, SignalArea::kBlockBytes)) {
    return failure(FailureKind::kProtocol, end_.peer(),
                   fmt::format("{} offers words for transfer '{}' outside its signal area", end_.peer(), other.name));
  }
  sequence_ = other.first_sequence;
  checked_ = true;
  return true;
}

Outcome<bool> DynamicSender::released() {
  TESSER_TRANSPORT_ASSIGN(const bool both, connected());
  if (!both) {
    return false;
  }
  const bool released = !sent_any_ || end_.has_arrived(sequence_ - 1);
  if (released) {
    return true;
  }
  if (auto reason = end_.ended(sequence_ - 1)) {
    if (end_.has_arrived(sequence_ - 1)) {
      return true;
    }
    return tl::unexpected<Failure>(std::move(*reason));
  }
  return false;
}

Outcome<bool> DynamicSender::can_send() {
  TESSER_TRANSPORT_ASSIGN(const bool free, released());
  if (auto reason = end_.ended(sequence_)) {
    return tl::unexpected<Failure>(std::move(*reason));
  }
  return free;
}

Outcome<bool> DynamicSender::try_send(DType dtype, const Shape& shape, std::uint64_t offset) {
  const auto bytes = checked_bytes(dtype, shape);
  if (!bytes || shape.size() > kMostDynamicDimensions || offset > region_->bytes() ||
      static_cast<std::uint64_t>(*bytes) > region_->bytes() - offset) {
    return failure(
        FailureKind::kInvalidArgument, end_.peer(),
        fmt::format("transfer '{}' to {}: {} at {} is not in the region of {} bytes, or has over {} dimensions",
                    end_.own().name, end_.peer(), shape_text(shape), offset, region_->bytes(), kMostDynamicDimensions));
  }
  TESSER_TRANSPORT_ASSIGN(const bool free, can_send());
  if (!free) {
    return false;
  }
  MetadataBlock block{};
  block.dtype = static_cast<std::uint32_t>(dtype);
  block.rank = static_cast<std::uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), block.dimensions);
  block.region = region_->handle().region;
  block.offset = offset;
  block.bytes = static_cast<std::uint64_t>(*bytes);
  // No larger than what every path sends together with its notification or copies in the call, so it may lie here.
  TESSER_TRANSPORT_RETURN_IF_FAILED(end_.channel().write_and_notify(
      reinterpret_cast<const std::byte*>(&block), Strided::contiguous(0, sizeof(block)), end_.channel().peer_signals(),
      Strided::contiguous(end_.other().block, sizeof(block)), end_.other().signal, end_.next_signal(sequence_),
      Notification::kOrdered, end_.channel().background()));
  ++sequence_;
  sent_any_ = true;
  return true;
}

Outcome<DynamicReceiver> DynamicReceiver::open(std::shared_ptr<Channel> channel, std::string name,
                                               std::uint32_t first_sequence) {
  Announcement own;
  own.role = Role::kDynamicReceiver;
  own.name = std::move(name);
  own.first_sequence = first_sequence;
  TESSER_TRANSPORT_ASSIGN(TransferEnd end, TransferEnd::open(std::move(channel), std::move(own)));
  return DynamicReceiver(std::move(end), first_sequence);
}

Outcome<const IncomingTensor*> DynamicReceiver::poll() {
  if (incoming_) {
    return &*incoming_;
  }
  if (end_.connected()) {
    const std::optional<Failure> reason =
        end_.ended(sequence_);  // before the look, so that what had arrived is not lost
    if (end_.has_arrived(sequence_)) {
      TESSER_TRANSPORT_RETURN_IF_FAILED(read_metadata());
      return &*incoming_;
    }
    if (!reason) {
      return nullptr;
    }
  }
  if (auto reason = end_.ended(sequence_)) {
    return tl::unexpected<Failure>(std::move(*reason));
  }
  return nullptr;
}

Outcome<void> DynamicReceiver::read_metadata() {
  MetadataBlock block;
  std::memcpy(&block, end_.channel().core().signals().data() + end_.own().block, sizeof(block));
  IncomingTensor tensor;
  bool good = block.dtype <= static_cast<std::uint32_t>(DType::kBool) && block.rank <= kMostDynamicDimensions &&
              block.region == end_.other().region;
  if (good) {
    tensor.dtype = static_cast<DType>(block.dtype);
    tensor.shape.assign(block.dimensions, block.dimensions + block.rank);
    const auto bytes = checked_bytes(tensor.dtype, tensor.shape);
    source_ = end_.channel().region(block.region);
    good = bytes && static_cast<std::uint64_t>(*bytes) == block.bytes && source_ != nullptr &&
           block.offset <= source_->bytes() && block.bytes <= source_->bytes() - block.offset;
  }
  if (!good) {
    return failure(FailureKind::kProtocol, end_.peer(),
                   fmt::format("{} offers a tensor for transfer '{}' whose metadata cannot be right", end_.peer(),
                               end_.own().name));
  }
  tensor.bytes = block.bytes;
  offset_ = block.offset;
  tensor.in_place = source_->mapped() == nullptr ? nullptr : source_->mapped() + offset_;
  incoming_ = std::move(tensor);
  return {};
}

Outcome<void> DynamicReceiver::receive(MemoryRegion& to, const Strided& layout, Completion& completion) {
  TESSER_CHECK(incoming_.has_value(), "no tensor offered for '" + end_.own().name + "'");
  TESSER_TRANSPORT_RETURN_IF_FAILED(
      end_.channel().read(*source_, Strided::contiguous(offset_, incoming_->bytes), to, layout, completion));
  reading_ = &completion;
  return {};
}

Outcome<std::uint64_t> DynamicReceiver::receive(RegisteredArena& arena, Completion& completion) {
  TESSER_CHECK(incoming_.has_value(), "no tensor offered for '" + end_.own().name + "'");
  TESSER_TRANSPORT_ASSIGN(const std::uint64_t offset, arena.allocate(incoming_->bytes));
  if (auto begun = receive(*arena.region(), Strided::contiguous(offset, incoming_->bytes), completion); !begun) {
    arena.free(offset);
    return tl::unexpected<Failure>(std::move(begun.error()));
  }
  return offset;
}

void DynamicReceiver::release() {
  TESSER_CHECK(incoming_.has_value(), "no tensor offered for '" + end_.own().name + "'");
  TESSER_CHECK(reading_ == nullptr || reading_->done(), "a read of '" + end_.own().name + "' in flight");
  reading_ = nullptr;
  incoming_.reset();
  end_.signal(sequence_++);  // a failure of the channel shows at the next poll
}

}  // namespace tesser::transport
