// Measures transfers between two connected devices; what `tesser transport bench` and `./x bench transfer` run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/channel.h"
#include "transport/device.h"
#include "transport/measured_rounds.h"

namespace tesser::transport {

enum class MeasuredTransfer : std::uint8_t { kStatic, kDynamic };

// 64 B to 256 MiB in steps of 4.
std::vector<std::uint64_t> default_sizes();

// One tensor of that many bytes, there and back (measured_rounds.h). Both sides call it with the same transfer, bytes
// and `name`, one of them as `first`, which gets the figures; the other gets no rounds. Blocks for about the time of
// the options.
Outcome<Measurement> measure_transfer(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                                      MeasuredTransfer transfer, const std::string& system, std::uint64_t bytes,
                                      const RoundOptions& options);

// A set of tensors exchanged by both sides at once, one transfer each and all in flight; otherwise as above.
Outcome<Measurement> measure_exchange(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                                      MeasuredTransfer transfer, const std::string& system,
                                      const std::vector<std::uint64_t>& tensors, const RoundOptions& options);

// memcpy between buffers of this process, in memory as a device has it.
Outcome<Measurement> measure_copy(std::uint64_t bytes, const RoundOptions& options);

}  // namespace tesser::transport
