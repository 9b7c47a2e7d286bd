// Prepares the next batch on a thread of its own while the step runs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/tensor.h"
#include "runtime/data.h"
#include "runtime/rectangle.h"

namespace tesser::runtime {

// Place of a batch in a run.
struct DataPosition {
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;  // in the epoch, from 0
  bool operator==(const DataPosition&) const = default;
};

struct LoaderOptions {
  std::int64_t seed = 0;
  bool shuffle = true;
  DataPosition start;
  // The part of each batch value that is wanted, by value of the data set; nothing where none is. Empty: all of them
  // whole.
  std::vector<std::optional<Rectangle>> parts;
  // Of several replicas: each step takes a batch of each, one after the other in the order of the data.
  std::int64_t replicas = 1;
  std::int64_t replica = 0;
};

// Hands out the batches from a position on, for ever, or the parts of them that the options name. Keeps one batch
// staged beside the one in use, and the order of one epoch (four bytes a sample when shuffled). next() belongs to one
// thread; the data set must outlive the loader.
class Loader {
 public:
  Loader(const DataSet& data, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Waits for the next batch, copies it to `targets` (one a value of the data set, in its order and of its dtype and
  // shape or its part's; values without a wanted part have none) and starts to prepare the one after it. Returns the
  // position of its step: that of the first replica's batch.
  DataPosition next(std::span<const MutableTensorView> targets);

 private:
  // A value of which something is wanted.
  struct Wanted {
    std::size_t value = 0;
    Rectangle place;
    bool is_whole_samples = true;
  };
  void prepare();
  void gather(const Wanted& wanted, std::span<const std::uint32_t> samples, std::byte* target);

  const DataSet& data_;
  const LoaderOptions options_;
  std::vector<Wanted> wanted_;
  std::vector<std::byte> samples_memory_;  // whole samples of which only a part is wanted

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool staged_ = false;  // true: staging_ belongs to next(); false: to the thread
  bool stopping_ = false;
  std::vector<std::vector<std::byte>> staging_;
  DataPosition staged_position_;

  std::thread thread_;
};

// The position of the step after the one that takes `replicas` batches from this position on; an epoch leaves out the
// last batches when they are fewer.
DataPosition following(DataPosition position, const DataSet& data, std::int64_t replicas = 1);
// The position itself, or the beginning of the next epoch when fewer batches than that are left in this one.
DataPosition with_batches(DataPosition position, const DataSet& data, std::int64_t replicas);

}  // namespace tesser::runtime
