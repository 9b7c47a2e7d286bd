// Same process and shared memory: the calling thread copies.

#include <cstring>

#include "transport/peer_path.h"
#include "transport/signal_area.h"

namespace tesser::transport {
namespace {

class MappedPath final : public PeerPath {
 public:
  std::string name() const override { return "mapped memory"; }

  void write(const std::byte* from, const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
             Completion&) override {
    std::memcpy(to.mapped() + offset, from, bytes);
  }

  void read(const RemoteRegion& from, std::uint64_t offset, std::byte* to, std::size_t bytes, Completion&) override {
    std::memcpy(to, from.mapped() + offset, bytes);
  }

  void flush(Completion&) override {}  // a store by this thread is ordered before its next signal

  void notify(const RemoteRegion& signals, std::uint32_t signal, std::uint64_t value, Notification,
              Completion&) override {
    store_signal(signals.mapped(), signal, value);
    wake(signals);
  }

  void store(const RemoteRegion& signals, std::uint32_t signal, std::uint64_t value, Notification,
             Completion&) override {
    store_signal(signals.mapped(), signal, value);
  }

  void wake(const RemoteRegion& signals) override { ring(*reinterpret_cast<Doorbell*>(signals.mapped())); }
};

}  // namespace

std::unique_ptr<PeerPath> make_mapped_path() { return std::make_unique<MappedPath>(); }

}  // namespace tesser::transport
