#include "transport/handshake.h"

#include <utility>

#include <unistd.h>

#include <fmt/format.h>

#include "transport/peer_path.h"
#include "transport/tcp_link.h"
#include "transport/ucx_worker.h"
#include "transport/wire.h"

namespace tesser::transport {
namespace {

constexpr std::uint64_t kMagic = 0x5054524553534554;  // "TESSERTP"
// What a device may use and has.
constexpr std::uint32_t kSharedMemoryAllowed = 1;
constexpr std::uint32_t kRdmaAllowed = 2;
constexpr std::uint32_t kTcpAllowed = 4;
constexpr std::uint32_t kRdmaAdapter = 8;

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

std::uint32_t own_flags(const DeviceOptions& options) {
  const Paths paths = options.paths;
  std::uint32_t flags = 0;
  flags |= paths == Paths::kAny || paths == Paths::kSharedMemoryOnly ? kSharedMemoryAllowed : 0;
  flags |= paths == Paths::kAny || paths == Paths::kUcxOnly || paths == Paths::kNetworkOnly ? kRdmaAllowed : 0;
  flags |= paths == Paths::kAny || paths == Paths::kTcpOnly || paths == Paths::kNetworkOnly ? kTcpAllowed : 0;
  if ((flags & kRdmaAllowed) != 0 && has_rdma_adapter({options.ucx_transports, options.ucx_devices})) {
    flags |= kRdmaAdapter;
  }
  return flags;
}

std::string serialise(const DeviceCore& core, std::uint64_t expected_nonce, std::uint64_t token) {
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
      .put(own_flags(core.options()))
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

// The path for a peer and why; the second connection where the path has one.
struct Choice {
  PathReport path;
  Descriptor unix_socket;  // which becomes the control connection
};

// Why one of the two may not or cannot use a path; empty when both can.
std::string obstacle(const DeviceCore& core, std::uint32_t own, const Hello& peer, std::uint32_t flag,
                     std::string_view what) {
  if ((own & peer.flags & flag) != 0) {
    return "";
  }
  return fmt::format("{} {}", (own & flag) != 0 ? peer.name : core.options().name, what);
}

Outcome<Choice> choose_path(const DeviceCore& core, const Hello& peer, std::uint64_t token, Deadline deadline) {
  const std::uint32_t own = own_flags(core.options());
  Choice choice;
  std::string no_shared_memory = "another machine";
  if (core.boot_id() == peer.boot_id) {
    no_shared_memory = obstacle(core, own, peer, kSharedMemoryAllowed, "is set not to use shared memory");
    if (no_shared_memory.empty()) {
      auto socket = connect_unix(peer.unix_name, deadline);
      if (socket && same_user(socket->get())) {
        TESSER_TRANSPORT_RETURN_IF_FAILED(
            send_frame(socket->get(), FrameType::kAttach, WireWriter().put(token).take(), -1, peer.name, deadline));
        const bool same_process = DeviceCore::find_in_process(peer.nonce) != nullptr;
        choice.path = {same_process ? Path::kSameProcess : Path::kSharedMemory,
                       same_process ? "same process" : "shared memory", same_process ? "same process" : "same machine"};
        choice.unix_socket = std::move(*socket);
        return choice;
      }
      no_shared_memory = socket ? "another user's process" : socket.error().message;
    }
    no_shared_memory = "same machine, but " + no_shared_memory;
  }
  std::string no_rdma = obstacle(core, own, peer, kRdmaAllowed, "is set not to use RDMA");
  if (no_rdma.empty()) {
    no_rdma = obstacle(core, own, peer, kRdmaAdapter, "has no adapter for RDMA");
  }
  if (no_rdma.empty()) {
    choice.path = {Path::kUcx, "UCX", std::move(no_shared_memory)};
    return choice;
  }
  const std::string no_tcp = obstacle(core, own, peer, kTcpAllowed, "is set not to use TCP");
  if (no_tcp.empty()) {
    choice.path = {Path::kTcp, "TCP", fmt::format("{}; {}", no_shared_memory, no_rdma)};
    return choice;
  }
  return failure(FailureKind::kUnreachable, peer.name,
                 fmt::format("no path to {} is left; shared memory: {}; RDMA: {}; TCP: {}", peer.name, no_shared_memory,
                             no_rdma, no_tcp));
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

// Both sides, once control connection and data connection stand: worker addresses, signal areas, channel.
Outcome<std::shared_ptr<Channel>> finish(const std::shared_ptr<DeviceCore>& core, Descriptor socket, Descriptor data,
                                         const Hello& peer, std::uint64_t token, PathReport path, bool accepted,
                                         Deadline deadline) {
  const int descriptor = socket.get();
  std::shared_ptr<UcxWorker> ucx;
  std::shared_ptr<TcpLink> link;
  std::unique_ptr<PeerPath> peer_path;
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
    TESSER_TRANSPORT_ASSIGN(peer_path, ucx->connect(peer.name, token, address.body, deadline));
    TESSER_TRANSPORT_ASSIGN(key, ucx->register_region(core->signals().region()));
  } else if (path.path == Path::kTcp) {
    link = std::make_shared<TcpLink>(*core, peer.name, token, std::move(data));
    peer_path = make_tcp_path(link);
  }
  const MemoryRegion& signals = *core->signals().region();
  TESSER_TRANSPORT_RETURN_IF_FAILED(send_frame(descriptor, FrameType::kRegion, region_frame(signals, key),
                                               path.path == Path::kSharedMemory ? signals.descriptor() : -1, peer.name,
                                               deadline));
  TESSER_TRANSPORT_ASSIGN(Frame frame, expect_frame(descriptor, FrameType::kRegion, peer.name, deadline));
  auto channel = std::make_shared<Channel>(core, peer.name, peer.nonce, token, std::move(path),
                                           std::make_unique<FrameStream>(std::move(socket)));
  if (peer_path != nullptr) {
    channel->set_path(std::move(peer_path));
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(channel->take_frame(std::move(frame)));
  const auto peer_signals = channel->region(0);
  if (peer_signals == nullptr || !SignalArea::is_good_size(peer_signals->bytes())) {
    return failure(FailureKind::kProtocol, peer.name,
                   fmt::format("{} has no signal area of a size that can be right", peer.name));
  }
  channel->become_ready();
  core->add_channel(channel, link, accepted);
  return channel;
}

Outcome<Descriptor> connect_for_data(const HostPort& address, std::uint64_t token, const std::string& peer,
                                     Deadline deadline) {
  TESSER_TRANSPORT_ASSIGN(Descriptor socket, connect_tcp(address, deadline));
  TESSER_TRANSPORT_RETURN_IF_FAILED(
      send_frame(socket.get(), FrameType::kAttach, WireWriter().put(token).take(), -1, peer, deadline));
  enlarge_buffers(socket.get());
  return socket;
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
  Descriptor data;
  if (choice->path.path == Path::kTcp) {
    auto connected = connect_for_data(address, token, peer, deadline);
    if (!connected) {
      refuse(socket.get(), connected.error(), peer);
      return tl::unexpected<Failure>(std::move(connected.error()));
    }
    data = std::move(*connected);
  }
  const int descriptor = choice->unix_socket ? choice->unix_socket.get() : socket.get();
  Descriptor control(::dup(descriptor));  // kept open here, to say why when the rest fails
  auto channel = finish(core, std::move(control), std::move(data), hello, token, choice->path, false, deadline);
  if (!channel) {
    refuse(descriptor, channel.error(), peer);
  }
  return channel;
}

namespace {

// A second connection, whose first frame was this one.
void attach(DeviceCore& core, const Frame& frame, DeviceCore::Attachment kind, Descriptor socket) {
  WireReader reader(frame.body);
  const auto token = reader.get<std::uint64_t>();
  if (reader.at_end()) {
    core.attach(token, kind, std::move(socket));
  }
}

// While it exists, second connections with this token are kept.
class ExpectedAttachments {
 public:
  ExpectedAttachments(DeviceCore& core, std::uint64_t token) : core_(core), token_(token) {
    core_.expect_attachments(token_);
  }
  ExpectedAttachments(const ExpectedAttachments&) = delete;
  ExpectedAttachments& operator=(const ExpectedAttachments&) = delete;
  ~ExpectedAttachments() { core_.forget_attachments(token_); }

 private:
  DeviceCore& core_;
  std::uint64_t token_;
};

}  // namespace

void serve_peer(const std::shared_ptr<DeviceCore>& core, Descriptor socket) {
  const Deadline deadline = in(kHandshakeTime);
  const std::string place = "a peer";
  auto frame = receive_frame(socket.get(), place, deadline);
  if (frame && frame->type == FrameType::kAttach) {
    attach(*core, *frame, DeviceCore::Attachment::kTcp, std::move(socket));
    return;
  }
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
  const ExpectedAttachments expected(*core, hello->token);
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
  if (!reader.at_end() || path.path > Path::kTcp) {
    return;
  }
  const std::uint32_t needed = path.path == Path::kTcp   ? kTcpAllowed
                               : path.path == Path::kUcx ? kRdmaAllowed
                                                         : kSharedMemoryAllowed;
  if ((own_flags(core->options()) & needed) == 0) {
    refuse(socket.get(),
           {FailureKind::kUnreachable, peer, fmt::format("{} is set to use another path", core->options().name)}, peer);
    return;
  }
  path.name = path.path == Path::kSameProcess    ? "same process"
              : path.path == Path::kSharedMemory ? "shared memory"
              : path.path == Path::kTcp          ? "TCP"
                                                 : "UCX";
  Descriptor data;
  if (path.path != Path::kUcx) {
    const bool tcp = path.path == Path::kTcp;
    auto attached = core->take_attached(
        hello->token, tcp ? DeviceCore::Attachment::kTcp : DeviceCore::Attachment::kUnix, peer, deadline);
    if (!attached) {
      refuse(socket.get(), attached.error(), peer);
      return;
    }
    if (tcp) {
      data = std::move(*attached);
      enlarge_buffers(data.get());
    } else {
      socket = std::move(*attached);
    }
  }
  Descriptor control(::dup(socket.get()));
  if (const auto channel = finish(core, std::move(control), std::move(data), *hello, hello->token, path, true,
                                  path.path == Path::kUcx ? in(kFabricTime) : deadline);
      !channel) {
    refuse(socket.get(), channel.error(), peer);
  }
}

void serve_attachment(const std::shared_ptr<DeviceCore>& core, Descriptor socket) {
  if (!same_user(socket.get())) {
    return;
  }
  const auto frame = receive_frame(socket.get(), "a peer", in(kHandshakeTime));
  if (frame && frame->type == FrameType::kAttach) {
    attach(*core, *frame, DeviceCore::Attachment::kUnix, std::move(socket));
  }
}

}  // namespace tesser::transport
