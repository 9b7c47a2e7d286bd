// An exchange over src/transport: one static transfer for each of a lowered program's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/exchange.h"
#include "transport/device.h"
#include "transport/static_transfer.h"

namespace tesser::runtime {

struct TransportExchangeOptions {
  int worker = 0;                          // this one
  std::string name;                        // tells the transfers of two exchanges over the same channels apart
  std::chrono::seconds connect_limit{60};  // for all peers to be there
  // Asked while waiting; a true answer ends the wait with an error.
  std::function<bool()> cancelled = [] { return false; };
};

class TransportExchange : public Exchange {
 public:
  // Channels to all other workers, made by the caller: one with each peer number. The device must outlive the exchange.
  TransportExchange(transport::Device& device, std::vector<std::shared_ptr<transport::Channel>> channels,
                    TransportExchangeOptions options);
  ~TransportExchange() override;

  Result<void> prepare(const graph::Program& program) override;
  std::int64_t buffer_bytes() const override { return buffer_bytes_; }
  std::byte* buffer(graph::ValueId opened) override;
  Result<void> open(std::span<const std::int64_t> transfers) override;
  Result<void> send(std::int64_t transfer, const std::byte* data, const Runs& runs) override;
  Result<void> wait_sent(std::int64_t transfer) override;
  Result<void> wait_received(std::span<const std::int64_t> transfers) override;
  ExchangeReport take_report() override;

 private:
  std::string transfer_name(std::int64_t transfer) const { return options_.name + std::to_string(transfer); }

  struct Sending {
    std::unique_ptr<transport::StaticSender> sender;
    std::unique_ptr<transport::Completion> completion;
    std::string peer;
  };
  struct Receiving {
    std::unique_ptr<transport::StaticReceiver> receiver;
    bool arrived = false;  // in this step
  };

  Result<void> lay_out_buffers(const graph::Program& program);
  Result<void> make_receivers(const graph::Program& program, const graph::Node& node);
  Result<void> make_sender(const graph::Program& program, const graph::Node& node);
  // Waits until `ready` is true or gives a failure.
  Result<void> wait(const std::function<transport::Outcome<bool>()>& ready);

  transport::Device& device_;
  const std::vector<std::shared_ptr<transport::Channel>> channels_;  // by worker; nothing at this worker's own place
  const TransportExchangeOptions options_;
  std::shared_ptr<transport::MemoryRegion> region_;  // of all buffers
  std::int64_t buffer_bytes_ = 0;
  std::unordered_map<graph::ValueId, std::int64_t> offsets_;
  std::unordered_map<std::int64_t, Sending> sending_;
  std::unordered_map<std::int64_t, Receiving> receiving_;
  ExchangeReport report_;
};

}  // namespace tesser::runtime
