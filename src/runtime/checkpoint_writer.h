// Writes checkpoints beside the running step (docs/formats/checkpoint.md).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "runtime/checkpoint.h"

namespace tesser::runtime {

// The exclusive right to write into a checkpoint directory, held until destruction or the end of the process.
// Move-only.
class CheckpointLock {
 public:
  // Makes the directory where it does not exist. kInvalidInput naming the process that holds it, when one does.
  static Result<CheckpointLock> acquire(const std::filesystem::path& directory);
  CheckpointLock(CheckpointLock&& other) noexcept;
  CheckpointLock& operator=(CheckpointLock&& other) noexcept;
  ~CheckpointLock();

  const std::filesystem::path& directory() const { return directory_; }

 private:
  CheckpointLock(std::filesystem::path directory, int descriptor);

  std::filesystem::path directory_;
  int descriptor_ = -1;
};

// Opens the newest complete checkpoint, or nothing when no run has completed one; removes what dead runs left
// unfinished and renames damaged ones. What it did is appended to `notes`. kInvalidInput where there are damaged ones
// only: what they held is for a person to give up. kFailed where one cannot be read, damaged or not.
Result<std::optional<Checkpoint>> open_for_resume(const CheckpointLock& lock, std::vector<std::string>& notes);

struct CheckpointWriterOptions {
  std::int64_t largest_shard_bytes = std::int64_t{1} << 31;  // of tensors; a larger value has a shard of its own
  int keep = 2;                                              // complete checkpoints that stay, at least 1
};

struct CheckpointWritten {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::int64_t bytes = 0;
  double seconds = 0;
  std::vector<std::string> notes;        // old checkpoints that could not be removed
  std::vector<ShardDescription> shards;  // of a writer that writes only part of a checkpoint
};

// Writes one checkpoint and removes older ones; blocks until it is durable. `contents` has one tensor a value. On
// failure nothing is left under a final name and older checkpoints stay as they were.
Result<CheckpointWritten> write_checkpoint(const CheckpointLock& lock, const CheckpointWriterOptions& options,
                                           const CheckpointInfo& info, const std::vector<StateValue>& values,
                                           std::span<const TensorView> contents);

// Parts of write_checkpoint(), for runs whose workers write a shard each.
struct NamedTensor {
  std::string name;
  TensorView content;
};
std::string shard_name(std::size_t shard, std::size_t count);
// The first tensor of each shard, and the number of tensors at the end.
std::vector<std::size_t> shard_bounds(std::span<const std::int64_t> bytes, std::int64_t largest);
// Writes and flushes one shard.
Result<ShardDescription> write_shard(const std::filesystem::path& path, std::span<const NamedTensor> tensors);
// The directory into which a checkpoint is written before it is complete.
std::filesystem::path unfinished_checkpoint(const std::filesystem::path& directory, std::int64_t step);
// Writes the manifest beside the shards that are there and gives the checkpoint its name; on failure removes it. Then
// removes older ones.
Result<CheckpointWritten> complete_checkpoint(const CheckpointLock& lock, const CheckpointWriterOptions& options,
                                              const Manifest& manifest);

// Writes on a thread of its own, out of a copy of the state. All functions belong to the thread that created it. The
// lock must outlive it; the destructor waits for the write in flight.
class CheckpointWriter {
 public:
  using Write = std::function<Result<CheckpointWritten>(const CheckpointInfo& info, std::span<const TensorView>)>;

  CheckpointWriter(const CheckpointLock& lock, CheckpointWriterOptions options, std::vector<StateValue> values);
  // `values` are staged; `write` is called on the writer's thread.
  CheckpointWriter(std::vector<StateValue> values, Write write);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Memory to copy the state into, one tensor a value in their order. No write may be in flight.
  std::span<const MutableTensorView> staging();
  // Begins to write what is staged.
  void start(CheckpointInfo info);

  // How the last write ended, once; nothing while it is in flight or when none was started.
  std::optional<Result<CheckpointWritten>> take_outcome();
  // The same after waiting for its end.
  std::optional<Result<CheckpointWritten>> wait_outcome();

 private:
  void run();

  const std::vector<StateValue> values_;
  const Write write_;
  std::vector<std::vector<std::byte>> memory_;  // allocated by the first staging()
  std::vector<MutableTensorView> staging_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<CheckpointInfo> pending_;  // set while a write is asked for or in flight
  std::optional<Result<CheckpointWritten>> outcome_;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace tesser::runtime
