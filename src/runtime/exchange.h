// What the executor of a lowered program (docs/formats/lowered.md) needs to exchange tensors with other workers. No
// ATen type and no transport type appears here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "graph/program.h"
#include "layout/strides.h"

namespace tesser::runtime {

// A rectangle of a tensor in memory: equal runs of bytes, one for each index into the axes, outermost first.
struct Runs {
  struct Axis {
    std::uint64_t count = 0;
    std::uint64_t pitch = 0;  // bytes
  };
  std::uint64_t offset = 0;  // bytes from the tensor's first element
  std::uint64_t run_bytes = 0;
  std::vector<Axis> axes;
};

// The rectangle [begin, begin + size) of a tensor with these strides, in an order of its dimensions (outermost first;
// empty means row-major); as few runs as possible.
Runs runs_of(DType dtype, std::span<const std::int64_t> strides, const Shape& begin, const Shape& size,
             const layout::Order& order);

// Time and bytes of one worker's exchange in the steps since it was last asked.
struct ExchangeReport {
  double waiting_seconds = 0;   // for other workers
  double transfer_seconds = 0;  // in calls that copy or post
  std::int64_t sent_bytes = 0;
};

// All functions belong to the executor's thread. Errors name the peer; after one the exchange is of no more use.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Once, before the first step, with the program as it will run: lays out the buffers of its tesser::open nodes and
  // makes both ends of all its transfers. Blocks until all peers have done the same, or a deadline.
  virtual Result<void> prepare(const graph::Program& program) = 0;
  virtual std::int64_t buffer_bytes() const = 0;  // of all buffers as laid out

  // Memory of the result of a tesser::open node, the same in every step; dense.
  virtual std::byte* buffer(graph::ValueId opened) = 0;
  // The peers may write. Does not block.
  virtual Result<void> open(std::span<const std::int64_t> transfers) = 0;
  // Blocks until the receiver has opened. `data` must stay as it is until wait_sent().
  virtual Result<void> send(std::int64_t transfer, const std::byte* data, const Runs& runs) = 0;
  virtual Result<void> wait_sent(std::int64_t transfer) = 0;
  virtual Result<void> wait_received(std::span<const std::int64_t> transfers) = 0;

  virtual ExchangeReport take_report() = 0;
};

}  // namespace tesser::runtime
