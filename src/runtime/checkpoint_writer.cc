#include "runtime/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checksum.h"
#include "base/file.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;

Path with_suffix(Path path, std::string_view suffix) {
  path += suffix;
  return path;
}

// Which process the lock file names, for a message.
std::string holder(const Path& file) {
  const Result<std::string> text = read_file(file, 64);
  const std::string pid = text ? text->substr(0, text->find_first_not_of("0123456789")) : "";
  return pid.empty() ? "another process" : "process " + pid;
}

// Removes a complete checkpoint so that it is never there in part under its name.
void remove_checkpoint(const Path& path, std::vector<std::string>& notes) {
  const Path removing = with_suffix(path, ".removing");
  std::error_code error;
  std::filesystem::remove_all(removing, error);
  std::filesystem::rename(path, removing, error);
  if (!error) {
    std::filesystem::remove_all(removing, error);
  }
  if (error) {
    notes.push_back(fmt::format("{}: cannot remove this old checkpoint: {}", path.string(), error.message()));
  }
}

// Writes the manifest and makes the directory durable; the bytes of all its files.
Result<std::int64_t> write_manifest(const Path& directory, const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  TESSER_RETURN_IF_ERROR(write_file_atomically(directory / "manifest.json", text));
  TESSER_RETURN_IF_ERROR(sync_directory(directory));
  auto bytes = static_cast<std::int64_t>(text.size());
  for (const ShardDescription& shard : manifest.shards) {
    bytes += static_cast<std::int64_t>(shard.bytes);
  }
  return bytes;
}

Result<std::int64_t> write_directory(const Path& directory, const CheckpointWriterOptions& options,
                                     const CheckpointInfo& info, const std::vector<StateValue>& values,
                                     std::span<const TensorView> contents) {
  std::vector<std::int64_t> bytes;
  for (const TensorView& content : contents) {
    bytes.push_back(static_cast<std::int64_t>(content.bytes()));
  }
  const std::vector<std::size_t> bounds = shard_bounds(bytes, options.largest_shard_bytes);
  Manifest manifest{info, values, {}, {}};
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    std::vector<NamedTensor> tensors;
    for (std::size_t k = bounds[i]; k < bounds[i + 1]; ++k) {
      tensors.push_back({values[k].name, contents[k]});
      manifest.parts.push_back({k, i, whole_rectangle(values[k].shape)});
    }
    TESSER_ASSIGN_OR_RETURN(ShardDescription shard, write_shard(directory / shard_name(i, bounds.size() - 1), tensors));
    manifest.shards.push_back(std::move(shard));
  }
  return write_manifest(directory, manifest);
}

// From `writing` to its final name, then without the older ones that need not stay.
Result<CheckpointWritten> publish(const CheckpointLock& lock, const CheckpointWriterOptions& options, std::int64_t step,
                                  const Path& writing, Result<std::int64_t> bytes) {
  const Path path = lock.directory() / checkpoint_name(step);
  std::error_code error;
  if (bytes) {
    std::filesystem::rename(writing, path, error);
    if (error) {
      bytes = tl::unexpected<Error>(file_error(path, "write", error.value()));
    } else if (const Result<void> synced = sync_directory(lock.directory()); !synced) {
      return tl::unexpected<Error>(synced.error());
    }
  }
  if (!bytes) {
    std::filesystem::remove_all(writing, error);
    return failed(std::move(bytes.error().message));
  }
  CheckpointWritten written{step, path, *bytes, 0, {}, {}};
  TESSER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, checkpoint_entries(lock.directory()));
  int kept = 0;
  for (const CheckpointEntry& entry : entries) {
    if (entry.suffix.empty() && entry.step <= step && ++kept > options.keep) {
      remove_checkpoint(entry.path, written.notes);
    }
  }
  return written;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::string shard_name(std::size_t shard, std::size_t count) {
  return fmt::format("state-{:05}-of-{:05}.safetensors", shard, count);
}

std::vector<std::size_t> shard_bounds(std::span<const std::int64_t> bytes, std::int64_t largest) {
  std::vector<std::size_t> bounds{0};
  std::int64_t total = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > bounds.back() && total + bytes[i] > largest) {
      bounds.push_back(i);
      total = 0;
    }
    total += bytes[i];
  }
  bounds.push_back(bytes.size());
  return bounds;
}

Result<ShardDescription> write_shard(const Path& path, std::span<const NamedTensor> tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const NamedTensor& tensor : tensors) {
    entries.push_back({tensor.name, tensor.content.dtype, tensor.content.shape});
  }
  TESSER_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TESSER_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::create(std::move(file), std::move(entries)));
  for (const NamedTensor& tensor : tensors) {
    TESSER_RETURN_IF_ERROR(writer.write(tensor.name, tensor.content));
  }
  TESSER_RETURN_IF_ERROR(writer.commit());
  // The checksum is taken of the file and not on the way there, as the writer may order and pad the tensors.
  TESSER_ASSIGN_OR_RETURN(const MappedFile written, MappedFile::open(path));
  const std::span<const std::byte> bytes = written.bytes();
  return ShardDescription{path.filename().string(), bytes.size(), crc32c(bytes.data(), bytes.size())};
}

Path unfinished_checkpoint(const Path& directory, std::int64_t step) {
  return with_suffix(directory / checkpoint_name(step), ".writing");
}

Result<CheckpointWritten> complete_checkpoint(const CheckpointLock& lock, const CheckpointWriterOptions& options,
                                              const Manifest& manifest) {
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t step = manifest.info.step;
  const Path writing = unfinished_checkpoint(lock.directory(), step);
  Result<CheckpointWritten> written = publish(lock, options, step, writing, write_manifest(writing, manifest));
  if (written) {
    written->seconds = seconds_since(begin);
  }
  return written;
}

CheckpointLock::CheckpointLock(Path directory, int descriptor)
    : directory_(std::move(directory)), descriptor_(descriptor) {}

CheckpointLock::CheckpointLock(CheckpointLock&& other) noexcept
    : directory_(std::move(other.directory_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

CheckpointLock& CheckpointLock::operator=(CheckpointLock&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

CheckpointLock::~CheckpointLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

Result<CheckpointLock> CheckpointLock::acquire(const Path& directory) {
  std::error_code error;
  if (std::filesystem::exists(directory / "manifest.json", error)) {
    return invalid_input(fmt::format("{}: is a checkpoint itself; give the directory that it is in, {}",
                                     directory.string(),
                                     std::filesystem::absolute(directory / "..").lexically_normal().string()));
  }
  std::filesystem::create_directories(directory, error);
  if (error) {
    return invalid_input(
        fmt::format("{}: cannot make this checkpoint directory: {}", directory.string(), error.message()));
  }
  const Path file = directory / "lock";
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return tl::unexpected<Error>(file_error(file, "write", errno));
  }
  CheckpointLock lock(directory, descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return tl::unexpected<Error>(file_error(file, "lock", errno));
    }
    return invalid_input(fmt::format(
        "{}: {} writes its checkpoints into this directory; wait for its end, or give another --checkpoint directory",
        directory.string(), holder(file)));
  }
  // The process id is for people only, so a disk too full to note it is no reason to stop.
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(descriptor, 0) == 0) {
    [[maybe_unused]] const ssize_t written = ::pwrite(descriptor, pid.data(), pid.size(), 0);
  }
  return lock;
}

Result<std::optional<Checkpoint>> open_for_resume(const CheckpointLock& lock, std::vector<std::string>& notes) {
  TESSER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, checkpoint_entries(lock.directory()));
  std::optional<Checkpoint> newest;
  std::vector<std::string> damages;
  for (const CheckpointEntry& entry : entries) {
    std::error_code error;
    if (entry.suffix == ".writing" || entry.suffix == ".removing") {
      std::filesystem::remove_all(entry.path, error);
      notes.push_back(fmt::format("removed {}, which was not finished{}", entry.path.string(),
                                  error ? ": " + error.message() : ""));
    } else if (entry.suffix.empty() && !newest) {
      std::vector<std::string> none;
      Result<Checkpoint> checkpoint = Checkpoint::open(entry.path, none);
      if (checkpoint) {
        newest.emplace(std::move(*checkpoint));
        continue;
      }
      if (checkpoint.error().code == ErrorCode::kFailed) {
        return tl::unexpected<Error>(checkpoint.error());
      }
      damages.push_back(fmt::format("{} ({})", entry.path.filename().string(), checkpoint.error().message));
      const Path damaged = with_suffix(entry.path, ".damaged");
      std::filesystem::remove_all(damaged, error);
      std::filesystem::rename(entry.path, damaged, error);
      notes.push_back(
          fmt::format("{} is damaged and not used ({}); {}", entry.path.string(), checkpoint.error().message,
                      error ? "it could not be renamed: " + error.message() : "it is now " + damaged.string()));
    } else if (entry.suffix == ".damaged") {
      damages.push_back(entry.path.filename().string());
    }
  }
  if (!newest && !damages.empty()) {
    return invalid_input(
        fmt::format("{}: every checkpoint is damaged: {}; to begin anew, remove them or give another directory",
                    lock.directory().string(), fmt::join(damages, ", ")));
  }
  return newest;
}

Result<CheckpointWritten> write_checkpoint(const CheckpointLock& lock, const CheckpointWriterOptions& options,
                                           const CheckpointInfo& info, const std::vector<StateValue>& values,
                                           std::span<const TensorView> contents) {
  TESSER_CHECK(values.size() == contents.size() && options.keep >= 1, std::to_string(contents.size()) + " contents");
  const auto begin = std::chrono::steady_clock::now();
  const Path writing = unfinished_checkpoint(lock.directory(), info.step);
  std::error_code error;
  std::filesystem::remove_all(writing, error);
  if (!std::filesystem::create_directory(writing, error)) {
    return tl::unexpected<Error>(file_error(writing, "make", error.value()));
  }
  Result<CheckpointWritten> written =
      publish(lock, options, info.step, writing, write_directory(writing, options, info, values, contents));
  if (written) {
    written->seconds = seconds_since(begin);
  }
  return written;
}

CheckpointWriter::CheckpointWriter(const CheckpointLock& lock, CheckpointWriterOptions options,
                                   std::vector<StateValue> values)
    : CheckpointWriter(values,
                       [&lock, options, values](const CheckpointInfo& info, std::span<const TensorView> contents) {
                         return write_checkpoint(lock, options, info, values, contents);
                       }) {}

CheckpointWriter::CheckpointWriter(std::vector<StateValue> values, Write write)
    : values_(std::move(values)), write_(std::move(write)), thread_([this] { run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::span<const MutableTensorView> CheckpointWriter::staging() {
  {
    const std::lock_guard guard(mutex_);
    TESSER_CHECK(!pending_, "a write in flight");
  }
  if (staging_.empty()) {
    for (const StateValue& value : values_) {
      memory_.emplace_back(static_cast<std::size_t>(element_count(value.shape)) * element_size(value.dtype));
      staging_.push_back({value.dtype, value.shape, memory_.back().data()});
    }
  }
  return staging_;
}

void CheckpointWriter::start(CheckpointInfo info) {
  {
    const std::lock_guard guard(mutex_);
    TESSER_CHECK(!pending_ && !outcome_, "a write in flight, or one whose outcome nobody took");
    pending_ = std::move(info);
  }
  changed_.notify_all();
}

std::optional<Result<CheckpointWritten>> CheckpointWriter::take_outcome() {
  const std::lock_guard guard(mutex_);
  return std::exchange(outcome_, std::nullopt);
}

std::optional<Result<CheckpointWritten>> CheckpointWriter::wait_outcome() {
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [this] { return !pending_; });
  return std::exchange(outcome_, std::nullopt);
}

void CheckpointWriter::run() {
  std::unique_lock guard(mutex_);
  while (true) {
    changed_.wait(guard, [this] { return stopping_ || pending_; });
    if (!pending_) {
      return;
    }
    const CheckpointInfo info = *pending_;
    guard.unlock();
    std::vector<TensorView> contents;
    for (const MutableTensorView& view : staging_) {
      contents.push_back({view.dtype, view.shape, view.data});
    }
    Result<CheckpointWritten> outcome = write_(info, contents);
    guard.lock();
    outcome_ = std::move(outcome);
    pending_.reset();
    changed_.notify_all();
  }
}

}  // namespace tesser::runtime
