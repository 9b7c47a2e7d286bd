#include "transport/service.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transport/device_core.h"
#include "transport/handshake.h"
#include "transport/peer_path.h"
#include "transport/wire.h"

namespace tesser::transport {
namespace {

// A loop this late means that this process itself did not run; its peers are not to blame.
constexpr std::chrono::seconds kStall{1};
constexpr std::chrono::seconds kFlushAtEnd{1};
constexpr std::chrono::microseconds kWhileNothingMoves{50};
constexpr std::chrono::microseconds kWhileOthersSpin{250};
constexpr int kMostRoundsOfProgress = 16;
// The data path of a dying process may break before its control connection does.
constexpr std::chrono::milliseconds kTimeToExplain{100};

void watch(int epoll, int descriptor, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

std::string farewell(FailureKind kind, std::string_view text) {
  return WireWriter().put(static_cast<std::uint32_t>(kind)).text(text).take();
}

}  // namespace

Service::Service(DeviceCore& core, Listener tcp, Descriptor unix_socket)
    : core_(core), tcp_(std::move(tcp)), unix_(std::move(unix_socket)) {}

Service::~Service() { stop(); }

Outcome<void> Service::start() {
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_) {
    return failure(FailureKind::kUnavailable, "",
                   fmt::format("no event descriptor: {}; raise ulimit -n", std::strerror(errno)));
  }
  watch(epoll_.get(), wake_.get(), EPOLLIN);
  watch(epoll_.get(), tcp_.socket.get(), EPOLLIN);
  watch(epoll_.get(), unix_.get(), EPOLLIN);
  watch(epoll_.get(), core_.tcp().event_descriptor(), EPOLLIN);
  thread_ = std::thread([this] { run(); });
  return {};
}

void Service::stop() {
  if (!thread_.joinable()) {
    return;
  }
  stopping_.store(true);
  wake();
  thread_.join();
}

void Service::post(std::function<void()> function) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(function));
  }
  wake();
}

void Service::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof(one));  // full: it is awake anyway
}

void Service::run() {
  Deadline last_round = Clock::now();
  next_beat_ = last_round;
  while (!stopping_.load()) {
    run_posted();
    watch_new_channels();
    const auto until_beat = std::chrono::ceil<std::chrono::milliseconds>(next_beat_ - Clock::now()).count();
    int timeout = static_cast<int>(std::max<std::int64_t>(0, until_beat));
    timeout = progress_networks(timeout);
    epoll_event events[32];
    const int count = ::epoll_wait(epoll_.get(), events, 32, timeout);
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[i].data.fd;
      if (descriptor == wake_.get()) {
        std::uint64_t value = 0;
        [[maybe_unused]] const auto got = ::read(descriptor, &value, sizeof(value));
      } else if (descriptor == tcp_.socket.get() || descriptor == unix_.get()) {
        accept_connections(descriptor, descriptor == tcp_.socket.get());
      } else if (const auto found = watched_.find(descriptor); found != watched_.end()) {
        const std::shared_ptr<Channel> channel = found->second;
        channel->stream().flush();
        read(channel);
      }
    }
    const Deadline now = Clock::now();
    const bool stalled = now - last_round > core_.options().heartbeat + kStall;
    last_round = now;
    if (stalled || now >= next_beat_) {
      beat(stalled);
      next_beat_ = now + core_.options().heartbeat;
      join_handshakes(false);
    }
  }
  say_farewell();
  join_handshakes(true);
  run_posted();
}

// Progresses TCP and UCX, unless other threads do, and returns for how long the loop may sleep.
int Service::progress_networks(int timeout_ms) {
  const std::shared_ptr<UcxWorker> ucx = core_.ucx();
  if (ucx == nullptr && core_.tcp().empty()) {
    return timeout_ms;
  }
  if (ucx != nullptr && !watches_ucx_) {
    // Edge-triggered: what a spinning thread is about to take must not wake this one again and again.
    watch(epoll_.get(), ucx->event_descriptor(), EPOLLIN | EPOLLET);
    watches_ucx_ = true;
  }
  if (core_.anybody_spins()) {
    // For the same reason only what other threads have to say wakes this one now, not what arrives.
    pollfd entry{wake_.get(), POLLIN, 0};
    const timespec time{0, std::chrono::nanoseconds(kWhileOthersSpin).count()};
    ::ppoll(&entry, 1, &time, nullptr);
    if (core_.anybody_spins()) {
      return 0;
    }
  }
  for (int round = 0; core_.progress() != 0; ++round) {
    if (round == kMostRoundsOfProgress) {
      return 0;  // control messages and heartbeats have their turn
    }
  }
  return ucx == nullptr || ucx->arm() ? timeout_ms : 0;
}

void Service::watch_new_channels() {
  for (const std::shared_ptr<Channel>& channel : core_.channels()) {
    if (watched_.emplace(channel->stream().descriptor(), channel).second) {
      channel->heard_now();
      watch(epoll_.get(), channel->stream().descriptor(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    }
  }
}

void Service::accept_connections(int listener, bool is_tcp) {
  while (true) {
    Descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      return;
    }
    if (is_tcp) {
      send_at_once(socket.get());
    }
    auto over = std::make_shared<std::atomic<bool>>(false);
    std::thread thread([core = core_.shared_from_this(), socket = std::move(socket), is_tcp, over]() mutable {
      is_tcp ? serve_peer(core, std::move(socket)) : serve_attachment(core, std::move(socket));
      over->store(true);
    });
    handshakes_.push_back({std::move(thread), std::move(over)});
  }
}

void Service::read(const std::shared_ptr<Channel>& channel) {
  std::vector<Frame> frames;
  const FrameStream::State state = channel->stream().receive(frames);
  if (!frames.empty()) {
    channel->heard_now();
  }
  const std::string& peer = channel->peer();
  for (Frame& frame : frames) {
    if (frame.type == FrameType::kFarewell || frame.type == FrameType::kRefusal) {
      WireReader reader(frame.body);
      const auto kind = static_cast<FailureKind>(reader.get<std::uint32_t>());
      const std::string text = reader.text();
      channel->peer_path().take_arrived(true);
      if (frame.type == FrameType::kFarewell && kind == FailureKind::kPeerClosed) {
        fail(channel, {kind, peer, fmt::format("{} has ended its side of the connection", peer)}, false);
      } else {
        fail(channel,
             {FailureKind::kExpelled, peer, fmt::format("{} has given up on {}: {}", peer, core_.options().name, text)},
             false);
      }
      return;
    }
    if (const auto taken = channel->take_frame(std::move(frame)); !taken) {
      fail(channel, taken.error(), true);
      return;
    }
  }
  if (state == FrameStream::State::kMalformed) {
    fail(channel, {FailureKind::kProtocol, peer, fmt::format("{} sent a control message that cannot be right", peer)},
         true);
  } else if (state == FrameStream::State::kClosed) {
    channel->peer_path().take_arrived(true);
    fail(channel,
         {FailureKind::kPeerDied, peer,
          fmt::format("{} is gone: its process ended without a farewell; its log may say why", peer)},
         false);
  }
}

void Service::beat(bool was_stalled) {
  const Deadline now = Clock::now();
  std::vector<std::shared_ptr<Channel>> silent;
  for (const auto& [descriptor, channel] : watched_) {
    channel->stream().send(FrameType::kBeat, "");
    if (was_stalled) {
      channel->heard_now();
    } else if (now - channel->last_heard() > core_.options().silence) {
      silent.push_back(channel);
    }
  }
  for (const std::shared_ptr<Channel>& channel : silent) {
    const double seconds = std::chrono::duration<double>(now - channel->last_heard()).count();
    fail(channel,
         {FailureKind::kPeerSilent, channel->peer(),
          fmt::format(
              "{} has been silent for {:.1f} s: its process is stopped, or its machine or the link to it is down",
              channel->peer(), seconds)},
         true);
  }
}

void Service::fail(const std::shared_ptr<Channel>& channel, Failure failure, bool tell_peer) {
  if (channel->failed()) {
    return;
  }
  if (failure.kind == FailureKind::kLinkDown && channel->stream().closes_within(kTimeToExplain)) {
    read(channel);
    if (channel->failed()) {
      return;
    }
  }
  // What had arrived before the end is good.
  channel->peer_path().take_arrived(false);
  if (const auto ucx = core_.ucx(); ucx != nullptr && channel->path().path == Path::kUcx) {
    const Deadline end = in(kTimeToExplain);  // other peers may go on sending
    while (ucx->progress() != 0 && Clock::now() < end) {
    }
  }
  if (tell_peer) {
    channel->stream().send(FrameType::kFarewell, farewell(failure.kind, failure.message));
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, channel->stream().descriptor(), nullptr);
  watched_.erase(channel->stream().descriptor());
  core_.remove_channel(*channel);
  channel->fail(std::move(failure));
}

void Service::run_posted() {
  std::vector<std::function<void()>> posted;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (const auto& function : posted) {
    function();
  }
}

void Service::join_handshakes(bool all) {
  for (auto handshake = handshakes_.begin(); handshake != handshakes_.end();) {
    if (all || handshake->over->load()) {
      handshake->thread.join();
      handshake = handshakes_.erase(handshake);
    } else {
      ++handshake;
    }
  }
}

void Service::say_farewell() {
  const Deadline end = in(kFlushAtEnd);
  const auto idle = [&] {
    const auto ucx = core_.ucx();
    return core_.tcp().idle() && (ucx == nullptr || ucx->idle());
  };
  while (!idle() && Clock::now() < end) {
    if (core_.progress() == 0) {
      std::this_thread::sleep_for(kWhileNothingMoves);
    }
  }
  core_.tcp().finish_sending();
  watch_new_channels();
  while (!watched_.empty()) {
    const std::shared_ptr<Channel> channel = watched_.begin()->second;
    channel->stream().send(FrameType::kFarewell, farewell(FailureKind::kPeerClosed, ""));
    fail(channel,
         {FailureKind::kPeerClosed, channel->peer(),
          fmt::format("this device, {}, has been closed", core_.options().name)},
         false);
  }
}

}  // namespace tesser::transport
