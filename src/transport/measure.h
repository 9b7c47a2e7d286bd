// Measures transfers between two connected devices; what `tesser transport bench` and `./x bench transfer` run.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/channel.h"
#include "transport/device.h"

namespace tesser::transport {

enum class MeasuredTransfer : std::uint8_t { kStatic, kDynamic };

struct Measurement {
  std::string system;  // "tesser-static", "tesser-dynamic", "tesser-tcp", "memcpy"
  std::uint64_t bytes = 0;
  double us_median = 0;  // one way
  double us_lowest = 0;
  int rounds = 0;

  double gb_s() const { return us_median == 0 ? 0 : static_cast<double>(bytes) / us_median * 1e-3; }
};

struct MeasureOptions {
  std::vector<std::uint64_t> sizes;
  std::chrono::milliseconds time_per_size{200};
};

// 64 B to 256 MiB in steps of 4.
std::vector<std::uint64_t> default_sizes();

// Ping-pong: the tensor goes there, the other side checks its first and last word and sends one of the same size back;
// one way is half a round trip. Both sides call it with the same options, one of them as `first`, which gets the
// numbers; the other gets none. Blocks for about sizes * time_per_size.
Outcome<std::vector<Measurement>> measure_transfers(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                                                    MeasuredTransfer transfer, const std::string& system,
                                                    const MeasureOptions& options);

// memcpy between two buffers of this process, with the same check: the limit for one copy.
std::vector<Measurement> measure_memcpy(const MeasureOptions& options);

}  // namespace tesser::transport
