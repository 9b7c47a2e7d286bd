// Sending, and what both directions share.

#include "transport/tcp_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <fmt/format.h>

#include "transport/device_core.h"

namespace tesser::transport {
namespace {

// Payload up to this is copied, so that the caller's may be on its stack.
constexpr std::uint64_t kCopied = 4 << 10;
constexpr std::uint64_t kMostInCall = 256 << 10;
constexpr std::uint64_t kMostInRound = 1 << 20;
constexpr std::size_t kMostPieces = 256;
constexpr std::size_t kPackedBytes = 64 << 10;
constexpr std::chrono::milliseconds kTimeToArrive{200};

std::uint32_t events_of(bool for_sending) { return for_sending ? EPOLLIN | EPOLLOUT : EPOLLIN; }

}  // namespace

TcpLink::TcpLink(DeviceCore& core, std::string peer, std::uint64_t token, Descriptor socket)
    : core_(core), peer_(std::move(peer)), token_(token), socket_(std::move(socket)) {}

void TcpLink::write(const std::byte* from, const Strided& source, TcpMessage message, Completion& completion) {
  completion.begin();
  Outgoing outgoing;
  outgoing.head = message.serialise();
  outgoing.completion = &completion;
  const std::uint64_t bytes = source.bytes();
  if (bytes <= kCopied) {
    for (RunCursor cursor(source); cursor.left() != 0;) {
      const std::uint64_t run = cursor.left_in_run();
      outgoing.head.append(reinterpret_cast<const char*>(from + cursor.offset()), run);
      cursor.advance(run);
    }
  } else {
    outgoing.from = from;
    outgoing.payload.emplace(source);
  }
  if (!enqueue(std::move(outgoing))) {
    completion.fail(*aborted_);  // which does not change any more
  }
}

void TcpLink::read(TcpMessage request, std::byte* to, const Strided& target, Completion& completion) {
  completion.begin();
  {
    const std::lock_guard lock(reads_mutex_);
    request.value = ++next_read_;
    reads_.emplace(request.value, Read{to, target, &completion});
  }
  Outgoing outgoing;
  outgoing.head = request.serialise();
  if (!enqueue(std::move(outgoing))) {
    const std::lock_guard lock(reads_mutex_);
    if (reads_.erase(request.value) != 0) {  // else abort() has seen it
      completion.fail(*aborted_);
    }
  }
}

// False after abort().
bool TcpLink::enqueue(Outgoing outgoing) {
  const std::lock_guard lock(send_mutex_);
  if (aborted_) {
    return false;
  }
  outgoing_.push_back(std::move(outgoing));
  if (!watched_for_sending_) {  // else the socket is full
    flush_locked(kMostInCall);
  }
  return true;
}

// Sends from the queue until it is empty, the socket full, or `most` is reached.
unsigned TcpLink::flush_locked(std::uint64_t most) {
  unsigned rounds = 0;
  std::uint64_t finished = 0;
  while (!outgoing_.empty() && most != 0 && !ended_.load()) {
    iovec pieces[kMostPieces];
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    std::size_t packed = 0;
    const auto add = [&](const void* data, std::uint64_t size) {
      size = std::min(size, most - bytes);
      pieces[count++] = {const_cast<void*>(data), static_cast<std::size_t>(size)};
      bytes += size;
    };
    for (auto outgoing = outgoing_.begin(); outgoing != outgoing_.end(); ++outgoing) {
      if (count == kMostPieces || bytes == most) {
        break;
      }
      if (outgoing->head_sent < outgoing->head.size()) {
        add(outgoing->head.data() + outgoing->head_sent, outgoing->head.size() - outgoing->head_sent);
      }
      if (outgoing->payload) {
        for (RunCursor cursor = *outgoing->payload; cursor.left() != 0 && count < kMostPieces && bytes < most;) {
          const std::uint64_t run = cursor.left_in_run();
          if (run >= kShortRun) {
            add(outgoing->from + cursor.offset(), run);
            cursor.advance(run);
            continue;
          }
          const std::size_t begin = packed;
          packed = pack_locked(outgoing->from, cursor, packed);
          if (packed == begin) {
            break;
          }
          add(packed_.data() + begin, packed - begin);
        }
        if (packed != 0) {
          break;  // what follows must not overtake runs that found no room
        }
      }
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent < 0) {
      if (errno != EAGAIN) {
        ended({FailureKind::kLinkDown, peer_,
               fmt::format("the data connection to {} broke: {}", peer_, std::strerror(errno))},
              true);
      }
      break;
    }
    ++rounds;
    finished += sent_locked(static_cast<std::uint64_t>(sent));
    most -= static_cast<std::uint64_t>(sent);
  }
  watch_locked(!outgoing_.empty());
  if (finished != 0) {
    core_.signals().ring();
  }
  return rounds;
}

// Copies short runs behind the first `used` bytes of packed_, as many as have room; returns how many bytes it then
// holds.
std::size_t TcpLink::pack_locked(const std::byte* from, RunCursor& cursor, std::size_t used) {
  packed_.resize(kPackedBytes);
  while (cursor.left() != 0 && cursor.left_in_run() < kShortRun && kPackedBytes - used >= kShortRun) {
    const std::uint64_t run = cursor.left_in_run();
    std::memcpy(packed_.data() + used, from + cursor.offset(), run);
    cursor.advance(run);
    used += run;
  }
  return used;
}

// Returns how many operations these bytes have completed.
std::uint64_t TcpLink::sent_locked(std::uint64_t bytes) {
  std::uint64_t finished = 0;
  while (!outgoing_.empty()) {
    Outgoing& front = outgoing_.front();
    const std::uint64_t of_head = std::min<std::uint64_t>(bytes, front.head.size() - front.head_sent);
    front.head_sent += of_head;
    bytes -= of_head;
    while (bytes != 0 && front.payload && front.payload->left() != 0) {
      const std::uint64_t run = std::min(bytes, front.payload->left_in_run());
      front.payload->advance(run);
      bytes -= run;
    }
    if (front.head_sent < front.head.size() || (front.payload && front.payload->left() != 0)) {
      break;
    }
    answers_ -= front.region != nullptr ? 1 : 0;
    Completion* const completion = front.completion;
    outgoing_.pop_front();
    if (completion != nullptr) {
      completion->finish();
      ++finished;
    }
  }
  return finished;
}

void TcpLink::watch(int epoll) {
  const std::lock_guard lock(send_mutex_);
  if (aborted_) {
    return;  // it would be ready for ever
  }
  epoll_ = epoll;
  watched_for_sending_ = !outgoing_.empty();
  epoll_event event{};
  event.events = events_of(watched_for_sending_);
  event.data.u64 = token_;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket_.get(), &event);
}

void TcpLink::watch_locked(bool for_sending) {
  if (for_sending == watched_for_sending_ || epoll_ < 0) {
    return;
  }
  watched_for_sending_ = for_sending;
  epoll_event event{};
  event.events = events_of(for_sending);
  event.data.u64 = token_;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event);
}

unsigned TcpLink::progress(std::uint32_t events) {
  unsigned rounds = 0;
  if ((events & EPOLLOUT) != 0) {
    const std::unique_lock lock(send_mutex_, std::try_to_lock);
    rounds += lock.owns_lock() ? flush_locked(kMostInRound) : 0;
  }
  if ((events & ~std::uint32_t{EPOLLOUT}) != 0) {
    const std::unique_lock lock(receive_mutex_, std::try_to_lock);
    rounds += lock.owns_lock() ? receive_locked(kMostInRound) : 0;
  }
  return rounds;
}

void TcpLink::take_arrived(bool all) {
  const std::lock_guard lock(receive_mutex_);
  const Deadline end = in(all ? kTimeToArrive : std::chrono::milliseconds(0));
  while (true) {
    if (receive_locked(kMostInRound) != 0) {
      continue;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0 || no_more_comes_ || aborted_) {
      return;
    }
    pollfd entry{socket_.get(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(left));
  }
}

bool TcpLink::idle() {
  const std::lock_guard lock(send_mutex_);
  return ended_.load() || outgoing_.empty();
}

void TcpLink::finish_sending() {
  const std::lock_guard lock(send_mutex_);
  ended_.store(true);
  ::shutdown(socket_.get(), SHUT_WR);
}

// Takes note; the service thread ends the channel, and with it the link.
void TcpLink::ended(Failure failure, bool tell_peer) {
  if (ended_.exchange(true)) {
    return;
  }
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_.get(), nullptr);  // it would be ready for ever
  if (auto channel = core_.channel_of_token(token_)) {
    core_.fail_channel(std::move(channel), std::move(failure), tell_peer);
  }
}

void TcpLink::abort(const Failure& failure) {
  ended_.store(true);
  const std::lock_guard receive(receive_mutex_);
  const std::lock_guard send(send_mutex_);
  if (aborted_) {
    return;
  }
  aborted_ = failure;
  for (const Outgoing& outgoing : outgoing_) {
    if (outgoing.completion != nullptr) {
      outgoing.completion->fail(failure);
    }
  }
  outgoing_.clear();
  if (incoming_.completion != nullptr) {
    incoming_.completion->fail(failure);
  }
  incoming_ = {};
  const std::lock_guard reads(reads_mutex_);
  for (const auto& [number, read] : reads_) {
    read.completion->fail(failure);
  }
  reads_.clear();
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_.get(), nullptr);
  ::shutdown(socket_.get(), SHUT_RDWR);
}

namespace {

class TcpPath final : public PeerPath {
 public:
  explicit TcpPath(std::shared_ptr<TcpLink> link) : link_(std::move(link)) {}
  ~TcpPath() override { link_->abort({FailureKind::kPeerClosed, "", "the channel is gone"}); }

  std::string name() const override { return "TCP"; }

  void write(const std::byte* from, const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
             Completion& completion) override {
    write_layout(from, Strided::contiguous(0, bytes), to, Strided::contiguous(offset, bytes), completion);
  }
  void read(const RemoteRegion& from, std::uint64_t offset, std::byte* to, std::size_t bytes,
            Completion& completion) override {
    read_layout(from, Strided::contiguous(offset, bytes), to, Strided::contiguous(0, bytes), completion);
  }
  void flush(Completion& completion) override {
    link_->read(TcpMessage{TcpKind::kReadRequest, 0, 0, 0, {}}, nullptr, {}, completion);
  }
  void notify(const RemoteRegion&, std::uint32_t signal, std::uint64_t value, Notification,
              Completion& completion) override {
    link_->write(nullptr, {}, TcpMessage{TcpKind::kWrite, value, 0, signal, {}}, completion);
  }

  void write_layout(const std::byte* from, const Strided& source, const RemoteRegion& to, const Strided& target,
                    Completion& completion) override {
    if (source.bytes() != 0) {
      link_->write(from, source, TcpMessage{TcpKind::kWrite, 0, to.handle().region, 0, target}, completion);
    }
  }
  void read_layout(const RemoteRegion& from, const Strided& source, std::byte* to, const Strided& target,
                   Completion& completion) override {
    if (source.bytes() != 0) {
      link_->read(TcpMessage{TcpKind::kReadRequest, 0, from.handle().region, 0, source}, to, target, completion);
    }
  }
  void write_layout_and_notify(const std::byte* from, const Strided& source, const RemoteRegion& to,
                               const Strided& target, const RemoteRegion&, std::uint32_t signal, std::uint64_t value,
                               Notification, Completion& completion) override {
    link_->write(from, source, TcpMessage{TcpKind::kWrite, value, to.handle().region, signal, target}, completion);
  }

  void take_arrived(bool all) override { link_->take_arrived(all); }
  void abort(const Failure& failure) override { link_->abort(failure); }

 private:
  std::shared_ptr<TcpLink> link_;
};

}  // namespace

std::unique_ptr<PeerPath> make_tcp_path(std::shared_ptr<TcpLink> link) {
  return std::make_unique<TcpPath>(std::move(link));
}

}  // namespace tesser::transport
