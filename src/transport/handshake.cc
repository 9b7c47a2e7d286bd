#include "transport/handshake.h"

#include <utility>

#include <unistd.h>

#include <fmt/format.h>

#include "transport/peer_path.h"
#include "transport/wire.h"

namespace tesser::transport {
namespace {

constexpr std::uint64_t kMagic = 0x5054524553534554;  // "TESSERTP"
constexpr std::uint32_t kSharedMemoryAllowed = 1;
constexpr std::uint32_t kUcxAllowed = 2;

struct Hello {
  std::uint32_t version = 0;
  std::uint64_t run = 0;
  std::uint32_t epoch = 0;
  std::uint64_t nonce = 0;
  std::uint64_t expected_nonce = 0;
  std::uint64_t token = 0;
  std::string name;
  std::string boot_id;
  std::string unix_name;
  std::uint32_t flags = 0;
};

std::string serialise(const DeviceCore& core, std::uint64_t expected_nonce, std::uint64_t token) {
  std::uint32_t flags = 0;
  flags |= core.options().paths != Paths::kUcxOnly ? kSharedMemoryAllowed : 0;
  flags |= core.options().paths != Paths::kSharedMemoryOnly ? kUcxAllowed : 0;
  return WireWriter()
      .put(kMagic)
      .put(kProtocolVersion)
      .put(core.options().run)
      .put(core.options().epoch)
      .put(core.nonce())
      .put(expected_nonce)
      .put(token)
      .text(core.options().name)
      .text(core.boot_id())
      .text(core.unix_name())
      .put(flags)
      .take();
}

// A Hello of another version has only its version.
Outcome<Hello> parse_hello(const Frame& frame, const std::string& peer) {
  WireReader reader(frame.body);
  if (frame.type != FrameType::kHello || reader.get<std::uint64_t>() != kMagic) {
    return failure(FailureKind::kProtocol, peer, fmt::format("what answers at {} is no tesser device", peer));
  }
  Hello hello;
  hello.version = reader.get<std::uint32_t>();
  if (hello.version != kProtocolVersion) {
    return hello;
  }
  hello.run = reader.get<std::uint64_t>();
  hello.epoch = reader.get<std::uint32_t>();
  hello.nonce = reader.get<std::uint64_t>();
  hello.expected_nonce = reader.get<std::uint64_t>();
  hello.token = reader.get<std::uint64_t>();
  hello.name = reader.text();
  hello.boot_id = reader.text();
  hello.unix_name = reader.text();
  hello.flags = reader.get<std::uint32_t>();
  if (!reader.at_end() || hello.nonce == 0) {
    return failure(FailureKind::kProtocol, peer, fmt::format("{} sends a greeting that cannot be right", peer));
  }
  return hello;
}

Outcome<void> check(const DeviceCore& core, const Hello& hello, const std::string& peer) {
  if (hello.version != kProtocolVersion) {
    return failure(
        FailureKind::kVersionMismatch, peer,
        fmt::format("{} speaks version {} of the transport protocol and {} version {}; run the same tesser on both",
                    peer, hello.version, core.options().name, kProtocolVersion));
  }
  if (hello.run != core.options().run || hello.epoch != core.options().epoch) {
    return failure(
        FailureKind::kWrongRun, peer,
        fmt::format("{} belongs to run {:x}, epoch {}, and {} to run {:x}, epoch {}; it is a worker of another or an "
                    "earlier run",
                    peer, hello.run, hello.epoch, core.options().name, core.options().run, core.options().epoch));
  }
  if (hello.expected_nonce != 0 && hello.expected_nonce != core.nonce()) {
    return failure(
        FailureKind::kWrongPeer, peer,
        fmt::format("{} meant device {:x} and reached '{}', which is device {:x}; its address is out of date", peer,
                    hello.expected_nonce, core.options().name, core.nonce()));
  }
  if (hello.nonce == core.nonce()) {
    return failure(FailureKind::kInvalidArgument, peer, "a device cannot connect to itself");
  }
  return {};
}

// The path for a peer and why; the Unix socket when it is shared memory or one process.
struct Choice {
  PathReport path;
  Descriptor unix_socket;
};

Outcome<Choice> choose_path(const DeviceCore& core, const Hello& peer, std::uint64_t token, Deadline deadline) {
  Choice choice;
  const bool shared_here = core.options().paths != Paths::kUcxOnly;
  const bool shared_there = (peer.flags & kSharedMemoryAllowed) != 0;
  if (core.boot_id() != peer.boot_id) {
    choice.path.reason = "another machine";
  } else if (!shared_here || !shared_there) {
    choice.path.reason =
        fmt::format("same machine, but {} is set to use UCX only", shared_here ? peer.name : core.options().name);
  } else {
    auto socket = connect_unix(peer.unix_name, deadline);
    if (!socket) {
      choice.path.reason = "same machine, but " + socket.error().message;
    } else if (!same_user(socket->get())) {
      choice.path.reason = "same machine, but another user's process";
    } else {
      TESSER_TRANSPORT_RETURN_IF_FAILED(
          send_frame(socket->get(), FrameType::kAttach, WireWriter().put(token).take(), -1, peer.name, deadline));
      const bool same_process = DeviceCore::find_in_process(peer.nonce) != nullptr;
      choice.path = {same_process ? Path::kSameProcess : Path::kSharedMemory,
                     same_process ? "same process" : "shared memory", same_process ? "same process" : "same machine"};
      choice.unix_socket = std::move(*socket);
      return choice;
    }
  }
  const bool ucx_here = core.options().paths != Paths::kSharedMemoryOnly;
  if (!ucx_here || (peer.flags & kUcxAllowed) == 0) {
    return failure(FailureKind::kUnreachable, peer.name,
                   fmt::format("{} cannot be reached by shared memory ({}), and {} is set to use nothing else",
                               peer.name, choice.path.reason, ucx_here ? peer.name : core.options().name));
  }
  choice.path.path = Path::kUcx;
  choice.path.name = "UCX";
  return choice;
}

Outcome<Frame> expect_frame(int socket, FrameType type, const std::string& peer, Deadline deadline) {
  auto frame = receive_frame(socket, peer, deadline);
  if (!frame) {
    return frame;
  }
  if (frame->type == FrameType::kRefusal) {
    WireReader reader(frame->body);
    const auto kind = static_cast<FailureKind>(reader.get<std::uint32_t>());
    std::string text = reader.text();
    if (!reader.at_end() || kind > FailureKind::kOutOfMemory) {
      text = "(unreadable reason)";
    }
    return failure(kind, peer, fmt::format("{} refused the connection: {}", peer, text));
  }
  if (frame->type != type) {
    return failure(
        FailureKind::kProtocol, peer,
        fmt::format("{} sent frame {} instead of {}", peer, static_cast<int>(frame->type), static_cast<int>(type)));
  }
  return frame;
}

void refuse(int socket, const Failure& reason, const std::string& peer) {
  send_frame(socket, FrameType::kRefusal,
             WireWriter().put(static_cast<std::uint32_t>(reason.kind)).text(reason.message).take(), -1, peer,
             in(std::chrono::seconds(1)));
}

// Both sides, once the control connection stands: worker addresses, signal areas, channel.
Outcome<std::shared_ptr<Channel>> finish(const std::shared_ptr<DeviceCore>& core, Descriptor socket, const Hello& peer,
                                         std::uint64_t token, PathReport path, bool accepted, Deadline deadline) {
  const int descriptor = socket.get();
  std::shared_ptr<UcxWorker> ucx;
  std::unique_ptr<PeerPath> ucx_path;
  std::string key;
  if (path.path == Path::kUcx) {
    auto opened = core->open_ucx();
    if (!opened) {
      Failure reason = std::move(opened.error());
      reason.message = fmt::format("{} cannot be reached: {} ({})", peer.name, reason.message, path.reason);
      reason.peer = peer.name;
      return tl::unexpected<Failure>(std::move(reason));
    }
    ucx = *opened;
    TESSER_TRANSPORT_RETURN_IF_FAILED(
        send_frame(descriptor, FrameType::kWorkerAddress, ucx->address(), -1, peer.name, deadline));
    TESSER_TRANSPORT_ASSIGN(const Frame address,
                            expect_frame(descriptor, FrameType::kWorkerAddress, peer.name, deadline));
    TESSER_TRANSPORT_ASSIGN(ucx_path, ucx->connect(peer.name, token, address.body));
    TESSER_TRANSPORT_ASSIGN(key, ucx->register_region(core->signals().region()));
  }
  const MemoryRegion& signals = *core->signals().region();
  TESSER_TRANSPORT_RETURN_IF_FAILED(send_frame(descriptor, FrameType::kRegion, region_frame(signals, key),
                                               path.path == Path::kSharedMemory ? signals.descriptor() : -1, peer.name,
                                               deadline));
  TESSER_TRANSPORT_ASSIGN(Frame frame, expect_frame(descriptor, FrameType::kRegion, peer.name, deadline));
  auto channel = std::make_shared<Channel>(core, peer.name, peer.nonce, token, std::move(path),
                                           std::make_unique<FrameStream>(std::move(socket)));
  if (ucx_path != nullptr) {
    channel->set_path(std::move(ucx_path));
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(channel->take_frame(std::move(frame)));
  if (channel->region(0) == nullptr || channel->region(0)->bytes() != SignalArea::kBytes) {
    return failure(FailureKind::kProtocol, peer.name,
                   fmt::format("{} has no signal area of the right size", peer.name));
  }
  channel->become_ready();
  core->add_channel(channel, accepted);
  return channel;
}

}  // namespace

std::string region_frame(const MemoryRegion& region, const std::string& ucx_key) {
  const RegionHandle& handle = region.handle();
  return WireWriter()
      .put(handle.region)
      .put(handle.kind)
      .put(handle.bytes)
      .put(reinterpret_cast<std::uint64_t>(region.data()))
      .text(region.name())
      .text(ucx_key)
      .take();
}

Outcome<std::shared_ptr<Channel>> connect_peer(const std::shared_ptr<DeviceCore>& core, const HostPort& address,
                                               std::uint64_t expected_nonce, Deadline deadline) {
  TESSER_TRANSPORT_ASSIGN(Descriptor socket, connect_tcp(address, deadline));
  const std::string place = fmt::format("{}:{}", address.host, address.port);
  const std::uint64_t token = random_nonce();
  TESSER_TRANSPORT_RETURN_IF_FAILED(
      send_frame(socket.get(), FrameType::kHello, serialise(*core, expected_nonce, token), -1, place, deadline));
  TESSER_TRANSPORT_ASSIGN(const Frame answer, expect_frame(socket.get(), FrameType::kHello, place, deadline));
  TESSER_TRANSPORT_ASSIGN(Hello hello, parse_hello(answer, place));
  const std::string peer = hello.name.empty() ? place : hello.name;
  TESSER_TRANSPORT_RETURN_IF_FAILED(check(*core, hello, peer));
  if (expected_nonce != 0 && hello.nonce != expected_nonce) {
    return failure(FailureKind::kWrongPeer, peer, fmt::format("{} is not the device that was meant", place));
  }
  auto choice = choose_path(*core, hello, token, deadline);
  if (!choice) {
    refuse(socket.get(), choice.error(), peer);
    return tl::unexpected<Failure>(std::move(choice.error()));
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(
      send_frame(socket.get(), FrameType::kDecision,
                 WireWriter().put(static_cast<std::uint32_t>(choice->path.path)).text(choice->path.reason).take(), -1,
                 peer, deadline));
  const int descriptor = choice->unix_socket ? choice->unix_socket.get() : socket.get();
  Descriptor control(::dup(descriptor));  // kept open here, to say why when the rest fails
  auto channel = finish(core, std::move(control), hello, token, choice->path, false, deadline);
  if (!channel) {
    refuse(descriptor, channel.error(), peer);
  }
  return channel;
}

void serve_peer(const std::shared_ptr<DeviceCore>& core, Descriptor socket) {
  const Deadline deadline = in(kHandshakeTime);
  const std::string place = "a peer";
  auto frame = receive_frame(socket.get(), place, deadline);
  if (!frame) {
    return;
  }
  auto hello = parse_hello(*frame, place);
  if (!hello) {
    return;
  }
  const std::string peer = hello->name.empty() ? "a peer without a name" : hello->name;
  if (const auto fit = check(*core, *hello, peer); !fit) {
    refuse(socket.get(), fit.error(), peer);
    return;
  }
  if (!send_frame(socket.get(), FrameType::kHello, serialise(*core, hello->nonce, hello->token), -1, peer, deadline)) {
    return;
  }
  auto decision = expect_frame(socket.get(), FrameType::kDecision, peer, deadline);
  if (!decision) {
    return;
  }
  WireReader reader(decision->body);
  PathReport path;
  path.path = static_cast<Path>(reader.get<std::uint32_t>());
  path.reason = reader.text();
  if (!reader.at_end() || path.path > Path::kUcx) {
    return;
  }
  path.name = path.path == Path::kSameProcess    ? "same process"
              : path.path == Path::kSharedMemory ? "shared memory"
                                                 : "UCX";
  if (path.path != Path::kUcx) {
    auto attached = core->take_attached(hello->token, peer, deadline);
    if (!attached) {
      refuse(socket.get(), attached.error(), peer);
      return;
    }
    socket = std::move(*attached);
  }
  Descriptor control(::dup(socket.get()));
  if (const auto channel = finish(core, std::move(control), *hello, hello->token, path, true, deadline); !channel) {
    refuse(socket.get(), channel.error(), peer);
  }
}

void serve_attachment(const std::shared_ptr<DeviceCore>& core, Descriptor socket) {
  if (!same_user(socket.get())) {
    return;
  }
  const auto frame = receive_frame(socket.get(), "a peer", in(kHandshakeTime));
  if (!frame || frame->type != FrameType::kAttach) {
    return;
  }
  WireReader reader(frame->body);
  const auto token = reader.get<std::uint64_t>();
  if (reader.at_end()) {
    core->attach(token, std::move(socket));
  }
}

}  // namespace tesser::transport
