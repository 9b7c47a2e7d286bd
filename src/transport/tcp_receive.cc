// Receiving: each message is checked against the regions of this device before a byte of its payload is placed.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <sys/socket.h>
#include <sys/uio.h>

#include <fmt/format.h>

#include "transport/device_core.h"
#include "transport/tcp_link.h"

namespace tesser::transport {
namespace {

constexpr std::size_t kMostRuns = 256;
constexpr std::size_t kNowhereBytes = 64 << 10;
constexpr std::size_t kMostAnswers = 1 << 18;  // that wait to be sent

}  // namespace

unsigned TcpLink::receive_locked(std::uint64_t most) {
  unsigned rounds = 0;
  std::uint64_t moved = 0;
  while (moved < most && !no_more_comes_ && !aborted_) {
    // Payload goes where it belongs, and what follows it, or has short runs, to the buffer.
    iovec pieces[kMostRuns + 1];
    std::size_t count = 0;
    std::uint64_t payload = 0;
    const std::uint64_t left = incoming_.left();
    if (left != 0 && incoming_.to == nullptr) {
      nowhere_.resize(kNowhereBytes);
      payload = std::min<std::uint64_t>(left, kNowhereBytes);
      pieces[count++] = {nowhere_.data(), static_cast<std::size_t>(payload)};
    } else if (left != 0 && !incoming_.has_short_runs) {
      for (RunCursor cursor = *incoming_.payload; cursor.left() != 0 && count < kMostRuns;) {
        const std::uint64_t run = cursor.left_in_run();
        pieces[count++] = {incoming_.to + cursor.offset(), static_cast<std::size_t>(run)};
        payload += run;
        cursor.advance(run);
      }
    }
    std::uint64_t wanted = payload;
    if (payload == left || (left != 0 && incoming_.has_short_runs && incoming_.to != nullptr)) {
      pieces[count++] = {buffer_.data() + buffer_end_, kBufferBytes - buffer_end_};
      wanted += kBufferBytes - buffer_end_;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t received = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) {
      continue;
    }
    if (received <= 0) {
      if (received == 0 || errno != EAGAIN) {
        no_more_comes_ = true;
        ended({FailureKind::kLinkDown, peer_,
               fmt::format("the data connection to {} {}", peer_,
                           received == 0 ? std::string("was closed") : fmt::format("broke: {}", std::strerror(errno)))},
              true);
      }
      break;
    }
    ++rounds;
    const auto bytes = static_cast<std::uint64_t>(received);
    moved += bytes;
    const std::uint64_t of_payload = std::min(bytes, payload);
    take_payload_locked(of_payload);
    buffer_end_ += static_cast<std::size_t>(bytes - of_payload);
    if (!parse_locked() || bytes < wanted) {
      break;  // nothing more has come yet
    }
  }
  return rounds;
}

void TcpLink::take_payload_locked(std::uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  while (bytes != 0) {
    const std::uint64_t run = std::min(bytes, incoming_.payload->left_in_run());
    incoming_.payload->advance(run);
    bytes -= run;
  }
  if (incoming_.left() == 0) {
    complete_locked();
  }
}

// Handles what is in the buffer. False when it cannot be right.
bool TcpLink::parse_locked() {
  place_buffered_locked();
  while (incoming_.left() == 0 && buffer_begin_ != buffer_end_) {
    const std::string_view bytes(reinterpret_cast<const char*>(buffer_.data()) + buffer_begin_,
                                 buffer_end_ - buffer_begin_);
    auto parsed = TcpMessage::parse(bytes);
    if (parsed && parsed->used == 0) {
      break;
    }
    const Outcome<void> begun =
        parsed ? begin_locked(std::move(parsed->message))
               : failure(FailureKind::kProtocol, peer_, fmt::format("{} sent data that cannot be right", peer_));
    if (!begun) {
      no_more_comes_ = true;
      ended(begun.error(), true);
      return false;
    }
    buffer_begin_ += parsed->used;
    place_buffered_locked();
  }
  // What is left is the begin of a message, and short.
  std::memmove(buffer_.data(), buffer_.data() + buffer_begin_, buffer_end_ - buffer_begin_);
  buffer_end_ -= buffer_begin_;
  buffer_begin_ = 0;
  return true;
}

void TcpLink::place_buffered_locked() {
  while (incoming_.left() != 0 && buffer_begin_ != buffer_end_) {
    const std::size_t run = std::min<std::size_t>(incoming_.payload->left_in_run(), buffer_end_ - buffer_begin_);
    if (incoming_.to != nullptr) {
      std::memcpy(incoming_.to + incoming_.payload->offset(), buffer_.data() + buffer_begin_, run);
    }
    buffer_begin_ += run;
    take_payload_locked(run);
  }
}

Outcome<void> TcpLink::begin_locked(TcpMessage message) {
  if (message.kind == TcpKind::kReadRequest) {
    return answer_locked(message);
  }
  incoming_ = {};
  incoming_.message = std::move(message);
  incoming_.payload.emplace(incoming_.message.layout);
  if (incoming_.message.kind == TcpKind::kWrite) {
    TESSER_TRANSPORT_RETURN_IF_FAILED(begin_write_locked());
  } else {
    const std::lock_guard lock(reads_mutex_);
    const auto found = reads_.find(incoming_.message.value);
    if (found == reads_.end() || found->second.target.bytes() != incoming_.message.layout.bytes()) {
      return failure(FailureKind::kProtocol, peer_,
                     fmt::format("{} answers a request that was not made or asks for another size", peer_));
    }
    incoming_.to = found->second.to;
    incoming_.completion = found->second.completion;
    incoming_.payload.emplace(std::move(found->second.target));
    reads_.erase(found);
  }
  incoming_.has_short_runs = incoming_.payload->left_in_run() < std::min(kShortRun, incoming_.left());
  if (incoming_.left() == 0) {
    complete_locked();
  }
  return {};
}

Outcome<void> TcpLink::begin_write_locked() {
  const TcpMessage& message = incoming_.message;
  if (message.signal != 0 && !core_.signals().expects(message.signal, message.value)) {
    return {};  // for a transfer that is over here: nobody waits for it, and its memory may be in other use
  }
  if (message.layout.bytes() == 0) {
    return {};
  }
  incoming_.region = core_.region(message.region);
  const bool inside = incoming_.region != nullptr && *message.layout.checked_end() <= incoming_.region->bytes();
  // Of the signal area only the metadata blocks are written to.
  if (!inside ||
      (message.region == 0 &&
       (!message.layout.axes.empty() || !core_.signals().is_block(message.layout.offset, message.layout.run_bytes)))) {
    return failure(FailureKind::kProtocol, peer_,
                   fmt::format("{} writes {} bytes to region {} where there is no memory for it", peer_,
                               message.layout.bytes(), message.region));
  }
  incoming_.to = incoming_.region->data();
  return {};
}

// The payload of the message has been placed.
void TcpLink::complete_locked() {
  Incoming done = std::exchange(incoming_, {});
  if (done.completion != nullptr) {
    done.completion->finish();
    core_.signals().ring();
  } else if (done.message.signal != 0) {
    core_.signals().deliver(done.message.signal, done.message.value);
  }
}

Outcome<void> TcpLink::answer_locked(const TcpMessage& request) {
  Outgoing answer;
  answer.region = core_.region(request.region);
  if (answer.region == nullptr || *request.layout.checked_end() > answer.region->bytes()) {
    return failure(FailureKind::kProtocol, peer_,
                   fmt::format("{} reads {} bytes of region {} where there is no memory", peer_, request.layout.bytes(),
                               request.region));
  }
  TcpMessage message;
  message.kind = TcpKind::kReadReply;
  message.value = request.value;
  message.layout = Strided::contiguous(0, request.layout.bytes());
  answer.head = message.serialise();
  answer.from = answer.region->data();
  if (request.layout.bytes() != 0) {
    answer.payload.emplace(request.layout);
  }
  {
    const std::lock_guard lock(send_mutex_);
    if (++answers_ > kMostAnswers) {
      return failure(FailureKind::kProtocol, peer_,
                     fmt::format("{} has over {} reads in flight and takes no answers", peer_, kMostAnswers));
    }
  }
  enqueue(std::move(answer));
  return {};
}

}  // namespace tesser::transport
