// Transfers whose shape is known only when they are sent: the sender announces the tensor in a metadata block, the
// receiver allocates and reads (docs/transport.md, dynamic transfer; the paper's dynamic allocation).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/tensor.h"
#include "transport/channel.h"
#include "transport/registered_arena.h"
#include "transport/transfer_end.h"

namespace tesser::transport {

constexpr std::size_t kMostDynamicDimensions = 8;

// Both ends give the same name. Each object belongs to one thread at a time, and none of the functions block.
class DynamicSender {
 public:
  // Tensors will be sent out of this region.
  static Outcome<DynamicSender> open(std::shared_ptr<Channel> channel, std::string name,
                                     std::shared_ptr<MemoryRegion> region);

  // Whether the receiver can take a tensor: the one before has been released.
  Outcome<bool> can_send();
  // Offers the contiguous tensor at `offset`. It must not change until released(). False: the one before has not been
  // released, nothing has begun.
  Outcome<bool> try_send(DType dtype, const Shape& shape, std::uint64_t offset);
  // Whether the receiver has done with the tensor sent last.
  Outcome<bool> released();

 private:
  DynamicSender(TransferEnd end, std::shared_ptr<MemoryRegion> region)
      : end_(std::move(end)), region_(std::move(region)) {}
  Outcome<bool> connected();

  TransferEnd end_;
  std::shared_ptr<MemoryRegion> region_;
  bool checked_ = false;
  std::uint32_t sequence_ = 0;  // of the next transfer
  bool sent_any_ = false;
};

// A tensor that is offered and lies at the sender's.
struct IncomingTensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::uint64_t bytes = 0;
  const std::byte* in_place = nullptr;  // the tensor itself, until release(), where the path maps it
};

class DynamicReceiver {
 public:
  static Outcome<DynamicReceiver> open(std::shared_ptr<Channel> channel, std::string name,
                                       std::uint32_t first_sequence = 1);

  // The tensor that is offered, the same until release(); nullptr when there is none. Valid until release().
  Outcome<const IncomingTensor*> poll();
  // Reads the offered tensor to `layout` in `to`; `completion` and `to` must live until it is done.
  Outcome<void> receive(MemoryRegion& to, const Strided& layout, Completion& completion);
  // The same, to a block from the arena; returns its offset, which is the caller's to free.
  Outcome<std::uint64_t> receive(RegisteredArena& arena, Completion& completion);
  // Gives the tensor back to the sender. Aborts when none is offered, or a receive() has not completed.
  void release();

 private:
  DynamicReceiver(TransferEnd end, std::uint32_t first_sequence) : end_(std::move(end)), sequence_(first_sequence) {}
  Outcome<void> read_metadata();

  TransferEnd end_;
  std::shared_ptr<const RemoteRegion> source_;
  std::uint32_t sequence_;  // of the transfer awaited or offered
  std::optional<IncomingTensor> incoming_;
  std::uint64_t offset_ = 0;  // of the offered tensor in source_
  const Completion* reading_ = nullptr;
};

}  // namespace tesser::transport
