// What all ends of transfers share: finding the other end, the signal words, sequence numbers. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/announcement.h"
#include "transport/channel.h"
#include "transport/failure.h"

namespace tesser::transport {

// One thread at a time.
class TransferEnd {
 public:
  // Allocates the signal word (a notification reader: the ring of own.ring_words), and a metadata block for a dynamic
  // receiver, and announces this end. Does not block.
  static Outcome<TransferEnd> open(std::shared_ptr<Channel> channel, Announcement own);
  TransferEnd(TransferEnd&& other) noexcept = default;
  TransferEnd& operator=(TransferEnd&&) = delete;
  ~TransferEnd();

  // Whether the other end is there; from then on other() is.
  bool connected();
  const Announcement& other() const { return *other_; }
  const Announcement& own() const { return own_; }
  Channel& channel() const { return *channel_; }
  const std::string& peer() const { return channel_->peer(); }

  // Whether the other end's signal area has these bytes, aligned as all that is allocated there.
  bool other_has(std::uint32_t offset, std::uint64_t bytes) const;

  // The value to signal for transfer `sequence` to the other end's word; it is remembered as the last one.
  std::uint64_t next_signal(std::uint32_t sequence) {
    return last_signal_ = std::uint64_t{other_->nonce} << 32 | sequence;
  }
  bool has_arrived(std::uint32_t sequence) const;
  // Signals transfer `sequence` to the other end, with nothing written before.
  Outcome<void> signal(std::uint32_t sequence);
  // Why transfer `sequence` will not arrive, if so: the channel has failed, or the other end is over and has not
  // signalled it (a last signal may arrive after the news of the end).
  // `window`: how many transfers, from this one on, the other end may have signalled at most.
  std::optional<Failure> ended(std::uint32_t sequence, std::uint32_t window = 1) const;
  // The answer where transfer `sequence` is not there: the failure if it will not come, else false.
  Outcome<bool> not_yet(std::uint32_t sequence) const;

 private:
  std::uint64_t awaited(std::uint32_t sequence) const { return std::uint64_t{own_.nonce} << 32 | sequence; }
  TransferEnd(std::shared_ptr<Channel> channel, Announcement own)
      : channel_(std::move(channel)), own_(std::move(own)) {}

  std::shared_ptr<Channel> channel_;  // empty once moved from
  Announcement own_;
  std::optional<Announcement> other_;
  std::uint64_t last_signal_ = 0;
};

}  // namespace tesser::transport
