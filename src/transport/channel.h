// A connection to one peer's memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/completion.h"
#include "transport/failure.h"
#include "transport/memory_region.h"
#include "transport/strided.h"

namespace tesser::transport {

class DeviceCore;
class FrameStream;
class PeerPath;
struct Announcement;
struct Frame;

enum class Path : std::uint8_t { kSameProcess, kSharedMemory, kUcx, kTcp };

// How a peer is reached, and why so; for people and for tests.
struct PathReport {
  Path path = Path::kSameProcess;
  std::string name;    // "shared memory", "UCX rc_verbs/mlx5_0:1", "TCP"
  std::string reason;  // "same machine", "another machine; no adapter for RDMA at worker 1"
};

// A region of the peer, ready for transfers. Valid as long as anybody holds it; after the channel has failed it can
// still be read in place where it is mapped.
class RemoteRegion {
 public:
  RemoteRegion(RegionHandle handle, std::shared_ptr<MemoryRegion> mapping, std::shared_ptr<const void> key,
               std::uint64_t address)
      : handle_(handle), mapping_(std::move(mapping)), key_(std::move(key)), address_(address) {}

  std::uint64_t bytes() const { return handle_.bytes; }
  const RegionHandle& handle() const { return handle_; }
  // The peer's memory itself where the path maps it, else nullptr. The protocol of the transfer says when it may be
  // read.
  std::byte* mapped() const { return mapping_ ? mapping_->data() : nullptr; }

  // For paths: UCX's unpacked key, and the address in the peer's process.
  const void* key() const { return key_.get(); }
  std::uint64_t address() const { return address_; }

 private:
  RegionHandle handle_;
  std::shared_ptr<MemoryRegion> mapping_;
  std::shared_ptr<const void> key_;
  std::uint64_t address_ = 0;
};

// When a notification may be seen (docs/transport.md, memory ordering).
enum class Notification : std::uint8_t {
  kOrdered,   // after everything written to this peer before: always right
  kTailFlag,  // posted behind the data: right only where the fabric places writes in order
  kAlone,     // nothing was written before that it could overtake
};

// Made by Device::connect and Device::accept. Operations may be called from any thread and do not block, but on mapped
// paths the calling thread copies. Layouts are checked against their regions (kInvalidArgument). An operation that
// returns a failure has not begun its completion. Regions and memory must live until the completion is done.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(std::shared_ptr<DeviceCore> core, std::string peer, std::uint64_t peer_nonce, std::uint64_t token,
          PathReport path, std::unique_ptr<FrameStream> stream);
  ~Channel();

  const std::string& peer() const { return peer_; }
  std::uint64_t peer_nonce() const { return peer_nonce_; }
  const PathReport& path() const { return path_; }
  bool failed() const { return failed_.load(std::memory_order_seq_cst); }
  std::optional<Failure> failure() const;

  // The peer's region of that handle. Blocks until the peer has published it or the deadline passes.
  Outcome<std::shared_ptr<const RemoteRegion>> import_region(const RegionHandle& handle, Deadline deadline);

  // Completes when the source may be reused.
  Outcome<void> write(const MemoryRegion& from, const Strided& source, const RemoteRegion& to, const Strided& target,
                      Completion& completion);
  // Completes when the target holds the bytes.
  Outcome<void> read(const RemoteRegion& from, const Strided& source, MemoryRegion& to, const Strided& target,
                     Completion& completion);
  // Completes when all that was written before is in the peer's memory.
  Outcome<void> flush(Completion& completion);
  // write() and then a store of `value` into the peer's signal word at `signal`; the layouts must have been checked.
  Outcome<void> write_and_notify(const std::byte* from, const Strided& source, const RemoteRegion& to,
                                 const Strided& target, std::uint32_t signal, std::uint64_t value, Notification order,
                                 Completion& completion);

  // Tells the peer that this side is done with it; the peer's channel fails with kPeerClosed, this one too.
  void close();

  // The rest is for this folder.
  DeviceCore& core() const { return *core_; }
  const RemoteRegion& peer_signals() const { return *peer_signals_; }
  std::uint64_t token() const { return token_; }
  FrameStream& stream() { return *stream_; }
  PeerPath& peer_path() { return *peer_path_; }
  // kInvalidArgument unless both layouts lie in their memory and hold the same bytes.
  Outcome<void> check_layouts(const Strided& here, std::size_t bytes_here, const Strided& there,
                              std::uint64_t bytes_there) const;
  Completion& background() { return background_; }  // for what nobody waits for; a failure there fails the channel
  void set_path(std::unique_ptr<PeerPath> path);
  void become_ready();  // once region 0 is known
  // The announcement of the other end, once it has come; it is handed out once.
  std::optional<Announcement> take_announcement(std::uint32_t role, const std::string& name);
  void announce(const Announcement& announcement);
  // This end of a transfer is over. Its words are given free once the peer's end is over too (peer_nonce 0: no end of
  // the peer was known).
  void withdraw(const Announcement& announcement, std::uint32_t peer_end, std::uint64_t last_signal,
                std::vector<std::uint32_t> offsets);
  // Once the peer's end is over: the last value it has signalled, 0 for none, which may still be under way.
  std::optional<std::uint64_t> withdrawn(std::uint32_t peer_end) const;
  std::shared_ptr<const RemoteRegion> region(std::uint32_t id) const;  // nullptr when unknown
  void publish_region(const MemoryRegion& region);
  Outcome<void> take_frame(Frame frame);  // service thread
  void fail(Failure failure);             // service thread
  void heard_now() { last_heard_ = Clock::now(); }
  Deadline last_heard() const { return last_heard_; }

 private:
  Outcome<void> check_usable() const;
  Outcome<void> take_region(const Frame& frame);
  Outcome<void> take_withdrawal(const Frame& frame);

  const std::shared_ptr<DeviceCore> core_;
  const std::string peer_;
  const std::uint64_t peer_nonce_;
  const std::uint64_t token_;
  PathReport path_;
  const std::unique_ptr<FrameStream> stream_;
  Completion background_;
  std::unique_ptr<PeerPath> peer_path_;
  std::shared_ptr<const RemoteRegion> peer_signals_;
  Deadline last_heard_ = Clock::now();  // service thread

  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
  std::map<std::uint32_t, std::shared_ptr<const RemoteRegion>> regions_;
  std::multimap<std::pair<std::uint32_t, std::string>, Announcement> announcements_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> retired_;  // by the peer's end: words to give free
  std::map<std::uint32_t, std::uint64_t> withdrawn_;             // ends of the peer that are over: last value
};

}  // namespace tesser::transport
