// The rounds of a measurement, the same whatever carries the tensors: tesser's transfers in measure.cc, gRPC in
// bench/transfer. Depends on no transfer, no UCX and no other file of this folder but failure.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/failure.h"

namespace tesser::transport {

struct RoundOptions {
  std::chrono::milliseconds time{200};  // for one measurement; a fifth of it warms up and is not counted
  int fewest_rounds = 3;                // counted, however long they take
};

// Microseconds over the counted rounds of one system and one tensor, or one set of tensors.
struct Measurement {
  std::string system;  // "tesser-static"
  std::uint64_t bytes = 0;
  int tensors = 1;
  double us_median = 0;
  double us_lowest = 0;
  int rounds = 0;

  double gb_s() const { return us_median == 0 ? 0 : static_cast<double>(bytes) / us_median * 1e-3; }
};

// {"system":"tesser-static","bytes":64,"tensors":1,"us_median":0.2500,"us_min":0.2300,"gb_s":0.2560,"rounds":20000}
std::string json_line(const Measurement& measurement);

// One process's end of a set of tensors that goes to the peer and comes back from it. A tensor has at least 8 bytes.
// Belongs to one thread.
class TensorCarrier {
 public:
  virtual ~TensorCarrier() = default;
  // The tensors to send, always in the same memory. They may be written after settle().
  virtual const std::vector<std::span<std::byte>>& outgoing() const = 0;
  // The peer's tensors, each contiguous, from receive() to release().
  virtual const std::vector<std::span<const std::byte>>& incoming() const = 0;

  // Starts sending all of outgoing() and does not wait for the peer.
  virtual Outcome<void> send() = 0;
  // Blocks until none of those sent before is in use.
  virtual Outcome<void> settle() = 0;
  // Blocks until incoming() is here whole, and goes on with sending meanwhile, also for other carriers of an exchange.
  virtual Outcome<void> receive() = 0;
  virtual Outcome<void> release() = 0;
};

// There and back: `lead` in one process and `follow` in the other. The first round's tensors are compared whole by the
// receiver, those of all rounds in their first and last word and in one of every 64 KiB, which hold the round's number.
// A time is that of a round divided by two: from the call that sends until the peer has verified the tensor.
Outcome<Measurement> lead_there_and_back(TensorCarrier& tensors, const std::string& system,
                                         const RoundOptions& options);
Outcome<void> follow_there_and_back(TensorCarrier& tensors);

// Both at once: in each round both processes send their set while they receive the other's. `turn` carries one tensor
// of 8 bytes. A time is that of a round, from the leader's word to begin until both sides have verified everything.
Outcome<Measurement> lead_exchange(TensorCarrier& tensors, TensorCarrier& turn, const std::string& system,
                                   const RoundOptions& options);
Outcome<void> follow_exchange(TensorCarrier& tensors, TensorCarrier& turn);

// memcpy there and back between four buffers of this process, which share `memory`: the limit of one copy.
Measurement measure_memcpy(std::span<std::byte> memory, const RoundOptions& options);

}  // namespace tesser::transport
