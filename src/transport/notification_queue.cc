#include "transport/notification_queue.h"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "transport/device_core.h"
#include "transport/peer_path.h"
#include "transport/signal_area.h"

namespace tesser::transport {
namespace {

constexpr int kNumberBits = 22;
static_assert(NotificationWriter::kMaxNumber == std::uint32_t{1} << kNumberBits);
constexpr std::uint32_t kLaps = std::uint32_t{1} << (32 - kNumberBits);

// Where a notification lies and how its word begins follow from its place in the count of all notifications. The ring
// has a power of two of words, at most 2^32 / kLaps, so that both go on evenly where the count wraps around.
static_assert(NotificationReader::kMostCapacity == (std::uint64_t{1} << 32) / kLaps);

std::uint32_t slot(std::uint32_t sequence, std::uint32_t words) {
  return (sequence & (words - 1)) * static_cast<std::uint32_t>(sizeof(std::uint64_t));
}

// Of the word, less the number: never 0, since no nonce is.
std::uint64_t mark(std::uint32_t nonce, std::uint32_t sequence, std::uint32_t words) {
  const std::uint32_t lap = (sequence >> std::countr_zero(words)) % kLaps;
  return std::uint64_t{nonce} << (32 - kNumberBits) | lap;
}

}  // namespace

Outcome<NotificationReader> NotificationReader::open(std::shared_ptr<Channel> channel, std::string name,
                                                     std::uint32_t capacity, std::uint32_t first_sequence) {
  if (capacity == 0 || capacity > kMostCapacity) {
    return failure(FailureKind::kInvalidArgument, channel->peer(),
                   fmt::format("queue '{}' from {}: a capacity of {}; a queue has 1 to {}", name, channel->peer(),
                               capacity, kMostCapacity));
  }
  Announcement own;
  own.role = Role::kNotificationReader;
  own.name = std::move(name);
  own.first_sequence = first_sequence;
  own.ring_words = std::bit_ceil(capacity);
  TESSER_TRANSPORT_ASSIGN(TransferEnd end, TransferEnd::open(std::move(channel), std::move(own)));
  return NotificationReader(std::move(end), first_sequence);
}

NotificationReader::NotificationReader(TransferEnd end, std::uint32_t first_sequence)
    : end_(std::move(end)),
      ring_(end_.channel().core().signals().data() + end_.own().signal),
      sequence_(first_sequence) {}

Outcome<bool> NotificationReader::connected() {
  if (end_.connected()) {
    return true;
  }
  return end_.not_yet(sequence_);
}

std::uint64_t NotificationReader::load() const { return load_signal(ring_, slot(sequence_, end_.own().ring_words)); }

bool NotificationReader::is_next(std::uint64_t word) const {
  return word >> kNumberBits == mark(end_.own().nonce, sequence_, end_.own().ring_words);
}

Outcome<std::optional<std::uint32_t>> NotificationReader::poll() {
  std::uint64_t word = load();
  std::optional<Failure> reason;
  if (!is_next(word)) {
    end_.connected();  // the end of the writer shows once it is known
    reason = end_.ended(sequence_, end_.own().ring_words);
    word = load();  // what had arrived before the end is good
  }
  if (is_next(word)) {
    ++sequence_;
    return static_cast<std::uint32_t>(word) % NotificationWriter::kMaxNumber;
  }
  if (reason) {
    return tl::unexpected<Failure>(std::move(*reason));
  }
  // Now the word can only be that of the lap before, or of none.
  const std::uint32_t words = end_.own().ring_words;
  if (word >> 32 == end_.own().nonce && word >> kNumberBits != mark(end_.own().nonce, sequence_ - words, words)) {
    return failure(FailureKind::kProtocol, end_.peer(),
                   fmt::format("{} has sent more notifications to queue '{}' than it holds unread ({}); read earlier, "
                               "or open it with a larger capacity",
                               end_.peer(), end_.own().name, words));
  }
  return std::nullopt;
}

Outcome<NotificationWriter> NotificationWriter::open(std::shared_ptr<Channel> channel, std::string name) {
  Announcement own;
  own.role = Role::kNotificationWriter;
  own.name = std::move(name);
  TESSER_TRANSPORT_ASSIGN(TransferEnd end, TransferEnd::open(std::move(channel), std::move(own)));
  return NotificationWriter(std::move(end));
}

Outcome<bool> NotificationWriter::connected() {
  if (checked_) [[likely]] {
    return true;
  }
  if (!end_.connected()) {
    return end_.not_yet(sequence_);
  }
  const Announcement& other = end_.other();
  if (!std::has_single_bit(other.ring_words) || other.ring_words > NotificationReader::kMostCapacity ||
      !end_.other_has(other.signal, other.ring_words * sizeof(std::uint64_t))) {
    return failure(
        FailureKind::kProtocol, end_.peer(),
        fmt::format("{} offers a ring for queue '{}' that is not in its signal area", end_.peer(), other.name));
  }
  sequence_ = other.first_sequence;
  checked_ = true;
  return true;
}

Outcome<void> NotificationWriter::check(std::uint32_t number) {
  if (number >= kMaxNumber) {
    return failure(
        FailureKind::kInvalidArgument, end_.peer(),
        fmt::format("queue '{}' to {}: number {} is not below {}", end_.own().name, end_.peer(), number, kMaxNumber));
  }
  TESSER_TRANSPORT_ASSIGN(const bool both, connected());
  if (!both) {
    return failure(FailureKind::kInvalidArgument, end_.peer(),
                   fmt::format("queue '{}' to {}: its reader is not there yet; wait for connected()", end_.own().name,
                               end_.peer()));
  }
  if (auto reason = end_.ended(sequence_)) {  // a reader says nothing, so that it is over when it has withdrawn
    return tl::unexpected<Failure>(std::move(*reason));
  }
  return {};
}

NotificationWriter::Signal NotificationWriter::next(std::uint32_t number) {
  const std::uint32_t words = end_.other().ring_words;
  end_.next_signal(sequence_);  // for the withdrawal
  const Signal signal{end_.other().signal + slot(sequence_, words),
                      mark(end_.other().nonce, sequence_, words) << kNumberBits | number};
  ++sequence_;
  return signal;
}

Outcome<void> NotificationWriter::notify(std::uint32_t number, Notification order) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(check(number));
  send(next(number), order == Notification::kAlone ? order : Notification::kOrdered);
  return {};
}

void NotificationWriter::send(const Signal& signal, Notification order) {
  Channel& channel = end_.channel();
  PeerPath& path = channel.peer_path();
  if (wakes_) {
    path.notify(channel.peer_signals(), signal.offset, signal.value, order, channel.background());
  } else {
    path.store(channel.peer_signals(), signal.offset, signal.value, order, channel.background());
  }
}

void NotificationWriter::wake() { end_.channel().peer_path().wake(end_.channel().peer_signals()); }

Outcome<void> NotificationWriter::write_and_notify(const MemoryRegion& from, const Strided& source,
                                                   const RemoteRegion& to, const Strided& target, std::uint32_t number,
                                                   Completion& completion) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(check(number));
  Channel& channel = end_.channel();
  TESSER_TRANSPORT_RETURN_IF_FAILED(channel.check_layouts(source, from.bytes(), target, to.bytes()));
  const Signal signal = next(number);
  if (!wakes_ && to.mapped() != nullptr) {
    TESSER_TRANSPORT_RETURN_IF_FAILED(channel.write(from, source, to, target, completion));
    send(signal, Notification::kOrdered);
    return {};
  }
  return channel.write_and_notify(from.data(), source, to, target, signal.offset, signal.value, Notification::kOrdered,
                                  completion);
}

}  // namespace tesser::transport
