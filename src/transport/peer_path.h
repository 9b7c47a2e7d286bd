// How bytes reach a peer: the part of a channel that differs between paths. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transport/channel.h"
#include "transport/completion.h"
#include "transport/strided.h"

namespace tesser::transport {

// Called from any thread. Ranges have been checked. Each call begins the completion as often as it ends it.
class PeerPath {
 public:
  virtual ~PeerPath() = default;

  virtual std::string name() const = 0;  // for PathReport

  virtual void write(const std::byte* from, const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
                     Completion& completion) = 0;
  virtual void read(const RemoteRegion& from, std::uint64_t offset, std::byte* to, std::size_t bytes,
                    Completion& completion) = 0;
  virtual void flush(Completion& completion) = 0;
  // Stores `value` in the word `signal` of the peer's signal area, ordered as asked.
  virtual void notify(const RemoteRegion& signals, std::uint32_t signal, std::uint64_t value, Notification order,
                      Completion& completion) = 0;
  // The same, but a peer whose memory is mapped here and who sleeps need not see it before wake(). Others are woken by
  // what arrives.
  virtual void store(const RemoteRegion& signals, std::uint32_t signal, std::uint64_t value, Notification order,
                     Completion& completion) {
    notify(signals, signal, value, order, completion);
  }
  virtual void wake(const RemoteRegion& signals) {}
  // Payload up to this size is best sent together with its notification; 0: never.
  virtual std::size_t largest_joint() const { return 0; }
  virtual void write_and_notify(const std::byte* from, const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
                                std::uint32_t signal, std::uint64_t value, Completion& completion) {}

  // Whole layouts of the same number of bytes; these go run by run where a path has nothing better.
  virtual void write_layout(const std::byte* from, const Strided& source, const RemoteRegion& to, const Strided& target,
                            Completion& completion);
  virtual void read_layout(const RemoteRegion& from, const Strided& source, std::byte* to, const Strided& target,
                           Completion& completion);
  virtual void write_layout_and_notify(const std::byte* from, const Strided& source, const RemoteRegion& to,
                                       const Strided& target, const RemoteRegion& signals, std::uint32_t signal,
                                       std::uint64_t value, Notification order, Completion& completion);

  // Takes what has arrived and was not looked at yet; `all`: what the peer had sent before it ended the connection, for
  // which this waits a bounded time. Service thread, before abort().
  virtual void take_arrived(bool all) {}
  // Ends everything in flight with this failure, soon. Nothing touches local memory afterwards. Service thread.
  virtual void abort(const Failure& failure) {}
};

// A peer whose memory is mapped here.
std::unique_ptr<PeerPath> make_mapped_path();

}  // namespace tesser::transport
