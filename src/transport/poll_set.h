// What waits for input, for schedulers that never block a thread ("polling-async" in the paper).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "transport/device.h"

namespace tesser::transport {

// One thread at a time.
class PollSet {
 public:
  explicit PollSet(Device& device) : device_(device) {}

  // Hands out `token` once `ready` returns true, which it must also do on a failure. It is asked by poll() and wait(),
  // is dropped when it was true, and must be quick.
  void add(std::function<bool()> ready, std::uint64_t token);
  std::size_t size() const { return waiting_.size(); }

  // Appends the tokens of all that has become ready and returns how many. Does not block.
  std::size_t poll(std::vector<std::uint64_t>& ready);
  // The same, but waits for the first one, spinning and then asleep. 0 when the deadline passes first.
  std::size_t wait(std::vector<std::uint64_t>& ready, Deadline deadline);

 private:
  struct Entry {
    std::function<bool()> ready;
    std::uint64_t token = 0;
  };

  std::size_t collect(std::vector<std::uint64_t>& ready);

  Device& device_;
  std::vector<Entry> waiting_;
};

}  // namespace tesser::transport
