// Transfers whose type is known ahead: the receiver's buffer is published once, and each tensor is one write and one
// notification (docs/transport.md, static transfer; the paper's static placement).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/tensor.h"
#include "transport/channel.h"
#include "transport/transfer_end.h"

namespace tesser::transport {

struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;
};

// Both ends give the same name and type. Either may be made first. Each object belongs to one thread at a time, and
// none of the functions block. A failure names the peer and is final.
class StaticReceiver {
 public:
  // Tensors will lie at `layout` in `region`, row-major over the layout's runs.
  static Outcome<StaticReceiver> open(std::shared_ptr<Channel> channel, std::string name, const TensorType& type,
                                      std::shared_ptr<MemoryRegion> region, Strided layout,
                                      std::uint32_t first_sequence = 1);
  StaticReceiver(StaticReceiver&& other) noexcept;
  ~StaticReceiver();

  // Grants the sender one transfer: from here until poll() returns true the buffer is the sender's. Aborts when a
  // transfer is granted already.
  void grant();
  // True once the granted tensor is in place whole; it then is the caller's until the next grant().
  Outcome<bool> poll();
  // Whether both ends are there and agree on the type.
  Outcome<bool> connected();

 private:
  class Unsignalled;
  StaticReceiver(TransferEnd end, std::shared_ptr<MemoryRegion> region, std::uint32_t first_sequence);

  enum class Grant : std::uint8_t { kNone, kUnsent, kSent };

  TransferEnd end_;
  std::shared_ptr<MemoryRegion> region_;
  std::unique_ptr<Unsignalled> unsignalled_;
  std::uint32_t sequence_;  // of the transfer granted last
  Grant grant_ = Grant::kNone;
  bool agreed_ = false;
};

class StaticSender {
 public:
  static Outcome<StaticSender> open(std::shared_ptr<Channel> channel, std::string name, const TensorType& type,
                                    Notification order = Notification::kOrdered);

  // Whether the receiver has granted the next transfer.
  Outcome<bool> can_send();
  // Sends the tensor at `source` in `from` when the receiver has granted it (true). The source must not change until
  // the completion is done. False: not granted yet, nothing has begun.
  Outcome<bool> try_send(const MemoryRegion& from, const Strided& source, Completion& completion);
  // The same out of memory that is in no region: mapped paths and TCP do not need one, over RDMA it costs a
  // registration or a copy.
  Outcome<bool> try_send(std::span<const std::byte> from, const Strided& source, Completion& completion);
  Outcome<bool> connected();

 private:
  StaticSender(TransferEnd end, Notification order) : end_(std::move(end)), order_(order) {}

  TransferEnd end_;
  Notification order_;
  std::shared_ptr<const RemoteRegion> target_;
  std::uint32_t sequence_ = 0;  // of the next transfer
};

}  // namespace tesser::transport
