#include "transport/channel.h"

#include <thread>

#include <fmt/format.h>

#include "transport/announcement.h"
#include "transport/device_core.h"
#include "transport/handshake.h"
#include "transport/peer_path.h"
#include "transport/socket.h"
#include "transport/wire.h"

namespace tesser::transport {

namespace {

// Whether a peer on this path that failed so can no longer write into this device's memory. Over TCP this process
// places what comes, and places nothing more.
bool is_gone(Path path, FailureKind kind) {
  return path == Path::kTcp || kind == FailureKind::kPeerDied || kind == FailureKind::kPeerClosed;
}

}  // namespace

Channel::Channel(std::shared_ptr<DeviceCore> core, std::string peer, std::uint64_t peer_nonce, std::uint64_t token,
                 PathReport path, std::unique_ptr<FrameStream> stream)
    : core_(std::move(core)),
      peer_(std::move(peer)),
      peer_nonce_(peer_nonce),
      token_(token),
      path_(std::move(path)),
      stream_(std::move(stream)) {}

Channel::~Channel() = default;

void Channel::set_path(std::unique_ptr<PeerPath> path) {
  peer_path_ = std::move(path);
  path_.name = peer_path_->name();
}

void Channel::become_ready() {
  peer_signals_ = region(0);
  if (peer_path_ == nullptr) {
    peer_path_ = make_mapped_path();
  }
}

std::optional<Failure> Channel::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Outcome<void> Channel::check_usable() const {
  if (!failed()) [[likely]] {
    return {};
  }
  return tl::unexpected<Failure>(*failure());
}

std::shared_ptr<const RemoteRegion> Channel::region(std::uint32_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : found->second;
}

Outcome<std::shared_ptr<const RemoteRegion>> Channel::import_region(const RegionHandle& handle, Deadline deadline) {
  if (handle.device != peer_nonce_) {
    return transport::failure(FailureKind::kWrongPeer, peer_,
                              fmt::format("the handle names a region of another device than {}", peer_));
  }
  std::shared_ptr<const RemoteRegion> found;
  const bool in_time = core_->wait([&] { return (found = region(handle.region)) != nullptr || failed(); }, deadline);
  if (found != nullptr) {
    if (found->handle().bytes != handle.bytes || found->handle().kind != handle.kind) {
      return transport::failure(
          FailureKind::kTypeMismatch, peer_,
          fmt::format("the handle says {} bytes, {} says {}", handle.bytes, peer_, found->bytes()));
    }
    return found;
  }
  if (!in_time) {
    return transport::failure(FailureKind::kTimeout, peer_,
                              fmt::format("{} has not published region {} in time", peer_, handle.region));
  }
  return tl::unexpected<Failure>(*failure());
}

Outcome<void> Channel::check_layouts(const Strided& here, std::size_t bytes_here, const Strided& there,
                                     std::uint64_t bytes_there) const {
  const auto end_here = here.checked_end();
  const auto end_there = there.checked_end();
  if (!end_here || !end_there || *end_here > bytes_here || *end_there > bytes_there) {
    return transport::failure(
        FailureKind::kInvalidArgument, peer_,
        fmt::format("a transfer with {} reaches past the end of its region ({} bytes here, {} there)", peer_,
                    bytes_here, bytes_there));
  }
  if (here.bytes() != there.bytes()) {
    return transport::failure(
        FailureKind::kInvalidArgument, peer_,
        fmt::format("a transfer with {} has {} bytes here and {} there", peer_, here.bytes(), there.bytes()));
  }
  return {};
}

Outcome<void> Channel::write(const MemoryRegion& from, const Strided& source, const RemoteRegion& to,
                             const Strided& target, Completion& completion) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(check_usable());
  TESSER_TRANSPORT_RETURN_IF_FAILED(check_layouts(source, from.bytes(), target, to.bytes()));
  peer_path_->write_layout(from.data(), source, to, target, completion);
  return {};
}

Outcome<void> Channel::read(const RemoteRegion& from, const Strided& source, MemoryRegion& to, const Strided& target,
                            Completion& completion) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(check_usable());
  TESSER_TRANSPORT_RETURN_IF_FAILED(check_layouts(target, to.bytes(), source, from.bytes()));
  peer_path_->read_layout(from, source, to.data(), target, completion);
  return {};
}

Outcome<void> Channel::flush(Completion& completion) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(check_usable());
  peer_path_->flush(completion);
  return {};
}

Outcome<void> Channel::write_and_notify(const std::byte* from, const Strided& source, const RemoteRegion& to,
                                        const Strided& target, std::uint32_t signal, std::uint64_t value,
                                        Notification order, Completion& completion) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(check_usable());
  peer_path_->write_layout_and_notify(from, source, to, target, *peer_signals_, signal, value, order, completion);
  return {};
}

void Channel::close() {
  core_->fail_channel(shared_from_this(),
                      {FailureKind::kPeerClosed, peer_, fmt::format("the channel to {} has been closed here", peer_)},
                      true);
}

std::optional<Announcement> Channel::take_announcement(std::uint32_t role, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = announcements_.equal_range({role, name});
  if (begin == end) {
    return std::nullopt;
  }
  const auto found = begin;
  Announcement announcement = std::move(found->second);
  announcements_.erase(found);
  return announcement;
}

void Channel::announce(const Announcement& announcement) {
  stream_->send(FrameType::kAnnouncement, announcement.serialise());
}

void Channel::withdraw(const Announcement& announcement, std::uint32_t peer_end, std::uint64_t last_signal,
                       std::vector<std::uint32_t> offsets) {
  stream_->send(
      FrameType::kWithdrawal,
      WireWriter().put(announcement.role).text(announcement.name).put(announcement.nonce).put(last_signal).take());
  {
    const std::lock_guard lock(mutex_);
    if (peer_end != 0 && withdrawn_.erase(peer_end) == 0 && !failure_) {
      retired_[peer_end] = std::move(offsets);  // the peer may still signal
      return;
    }
    // A peer that was given up for silence may run again and store into these words: they are lost.
    if (failure_ && !is_gone(path_.path, failure_->kind)) {
      return;
    }
  }
  for (const std::uint32_t offset : offsets) {
    core_->signals().free(offset);
  }
}

std::optional<std::uint64_t> Channel::withdrawn(std::uint32_t peer_end) const {
  const std::lock_guard lock(mutex_);
  const auto found = withdrawn_.find(peer_end);
  return found == withdrawn_.end() ? std::nullopt : std::optional(found->second);
}

void Channel::publish_region(const MemoryRegion& region) {
  std::string key;
  if (path_.path == Path::kUcx) {
    // Registered before, so that this only looks the key up.
    if (auto registered = core_->ucx()->register_region(core_->region(region.handle().region))) {
      key = std::move(*registered);
    }
  }
  stream_->send(FrameType::kRegion, region_frame(region, key),
                path_.path == Path::kSharedMemory ? region.descriptor() : -1);
}

Outcome<void> Channel::take_frame(Frame frame) {
  switch (frame.type) {
    case FrameType::kBeat:
      return {};
    case FrameType::kRegion:
      return take_region(frame);
    case FrameType::kWithdrawal:
      return take_withdrawal(frame);
    case FrameType::kAnnouncement: {
      TESSER_TRANSPORT_ASSIGN(Announcement announcement, Announcement::parse(frame.body, peer_));
      {
        const std::lock_guard lock(mutex_);
        const auto role = static_cast<std::uint32_t>(announcement.role);
        std::string name = announcement.name;
        // Ends of this name that came and went without a counterpart here.
        const auto [begin, end] = announcements_.equal_range({role, name});
        for (auto entry = begin; entry != end;) {
          const auto gone = withdrawn_.find(entry->second.nonce);
          if (gone == withdrawn_.end()) {
            ++entry;
            continue;
          }
          withdrawn_.erase(gone);
          entry = announcements_.erase(entry);
        }
        announcements_.emplace(std::make_pair(role, std::move(name)), std::move(announcement));
      }
      core_->signals().ring();
      return {};
    }
    default:
      return transport::failure(
          FailureKind::kProtocol, peer_,
          fmt::format("{} sent control message {} at the wrong time", peer_, static_cast<std::uint32_t>(frame.type)));
  }
}

Outcome<void> Channel::take_region(const Frame& frame) {
  WireReader reader(frame.body);
  RegionHandle handle;
  handle.device = peer_nonce_;
  handle.region = reader.get<std::uint32_t>();
  handle.kind = reader.get<MemoryKind>();
  handle.bytes = reader.get<std::uint64_t>();
  const auto address = reader.get<std::uint64_t>();
  reader.text();  // its name there
  const std::string key = reader.text();
  if (!reader.at_end() || handle.kind > MemoryKind::kRocm) {
    return transport::failure(FailureKind::kProtocol, peer_,
                              fmt::format("{} publishes a region in a way that cannot be right", peer_));
  }
  std::shared_ptr<MemoryRegion> mapping;
  std::shared_ptr<const void> unpacked;
  if (path_.path == Path::kSameProcess) {
    const auto device = DeviceCore::find_in_process(peer_nonce_);
    mapping = device == nullptr ? nullptr : device->region(handle.region);
    if (mapping == nullptr) {
      return {};  // gone in the meantime; the end of the device follows
    }
  } else if (path_.path == Path::kSharedMemory) {
    TESSER_TRANSPORT_ASSIGN(MemoryRegion mapped, MemoryRegion::map_descriptor(frame.descriptor.get(), handle, peer_));
    mapping = std::make_shared<MemoryRegion>(std::move(mapped));
  } else if (path_.path == Path::kUcx) {
    TESSER_TRANSPORT_ASSIGN(unpacked, core_->ucx()->unpack_key(*peer_path_, peer_, key));
  }
  {
    const std::lock_guard lock(mutex_);
    regions_[handle.region] =
        std::make_shared<const RemoteRegion>(handle, std::move(mapping), std::move(unpacked), address);
  }
  core_->signals().ring();
  return {};
}

Outcome<void> Channel::take_withdrawal(const Frame& frame) {
  WireReader reader(frame.body);
  reader.get<std::uint32_t>();  // role and name are for people who look at the wire
  reader.text();
  const auto nonce = reader.get<std::uint32_t>();
  const auto last_signal = reader.get<std::uint64_t>();
  if (!reader.at_end()) {
    return transport::failure(FailureKind::kProtocol, peer_,
                              fmt::format("{} withdraws a transfer in a way that cannot be right", peer_));
  }
  std::vector<std::uint32_t> offsets;
  {
    const std::lock_guard lock(mutex_);
    if (const auto retired = retired_.find(nonce); retired != retired_.end()) {
      offsets = std::move(retired->second);
      retired_.erase(retired);
    } else {
      withdrawn_[nonce] = last_signal;
    }
  }
  for (const std::uint32_t offset : offsets) {
    core_->signals().free(offset);
  }
  core_->signals().ring();
  return {};
}

void Channel::fail(Failure failure) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> retired;
  const bool gone = is_gone(path_.path, failure.kind);
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return;
    }
    failure_ = std::move(failure);
    retired.swap(retired_);
  }
  failed_.store(true, std::memory_order_seq_cst);
  peer_path_->abort(*this->failure());
  if (gone) {  // else these words are lost, see withdraw()
    for (const auto& [peer_end, offsets] : retired) {
      for (const std::uint32_t offset : offsets) {
        core_->signals().free(offset);
      }
    }
  }
  stream_->shut_down();
  core_->signals().ring();
}

}  // namespace tesser::transport
