// Ordered notifications from one peer to one reader: numbers of the sender's choice, each alone or behind a write
// (docs/transport.md, notification queue).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/channel.h"
#include "transport/transfer_end.h"

namespace tesser::transport {

// Both ends give the same name. Either may be made first. Each object belongs to one thread at a time, and none of the
// functions block. A failure names the peer and is final.
class NotificationReader {
 public:
  static constexpr std::uint32_t kMostCapacity = std::uint32_t{1} << 22;

  // `capacity`, from 1: how many notifications may be unread at once. There are no credits: the caller's protocol sees
  // to it, and more are a failure of the reader (kProtocol) at best. Takes 8 bytes of the device's signal area for
  // each, rounded up to a power of two (DeviceOptions::signal_bytes). `first_sequence`: where the count of
  // notifications begins, which nobody sees.
  static Outcome<NotificationReader> open(std::shared_ptr<Channel> channel, std::string name, std::uint32_t capacity,
                                          std::uint32_t first_sequence = 1);

  // Whether the writer is there. What it has sent can be read without asking.
  Outcome<bool> connected();
  // A cheap look, a load: whether poll() would return a number now. A failure does not show here.
  bool ready() const { return is_next(load()); }
  // The next number, which is thereby read; nullopt while none is there. All that was written before it can be seen.
  // The failure of the channel, or the end of the writer (kPeerClosed), once nothing that had arrived is left.
  Outcome<std::optional<std::uint32_t>> poll();

 private:
  NotificationReader(TransferEnd end, std::uint32_t first_sequence);

  std::uint64_t load() const;
  bool is_next(std::uint64_t word) const;

  TransferEnd end_;
  std::byte* ring_;         // in the device's signal area, which lives as long as end_ does
  std::uint32_t sequence_;  // of the next notification
};

class NotificationWriter {
 public:
  static constexpr std::uint32_t kMaxNumber = std::uint32_t{1} << 22;  // numbers are below it

  static Outcome<NotificationWriter> open(std::shared_ptr<Channel> channel, std::string name);

  // Whether the reader is there. Before that nothing can be sent (kInvalidArgument).
  Outcome<bool> connected();
  // The reader gets the number after all that was sent through this queue before and, unless `order` is kAlone, after
  // all that was written to this peer before. kTailFlag is the same as kOrdered here.
  Outcome<void> notify(std::uint32_t number, Notification order = Notification::kOrdered);
  // Writes as Channel::write does; the reader gets the number after all that was sent through this queue before, and
  // after this write. The completion is done when the source may be reused. Payload that comes when the reader is over
  // may be placed or not.
  Outcome<void> write_and_notify(const MemoryRegion& from, const Strided& source, const RemoteRegion& to,
                                 const Strided& target, std::uint32_t number, Completion& completion);

  // From now on a reader whose memory is mapped here, and who sleeps, is woken by wake() alone; otherwise it sees what
  // was sent when it wakes for another reason. Other readers are woken as before. A wake-up costs as much as some ten
  // notifications, on both sides.
  void wake_on_request() { wakes_ = false; }
  void wake();

 private:
  explicit NotificationWriter(TransferEnd end) : end_(std::move(end)) {}

  struct Signal {
    std::uint32_t offset = 0;  // in the reader's signal area
    std::uint64_t value = 0;
  };
  Outcome<void> check(std::uint32_t number);
  Signal next(std::uint32_t number);
  void send(const Signal& signal, Notification order);

  TransferEnd end_;
  bool wakes_ = true;           // with each notification
  bool checked_ = false;        // the reader's announcement
  std::uint32_t sequence_ = 0;  // of the next notification
};

}  // namespace tesser::transport
