// Checkpoints as docs/formats/checkpoint.md describes them: the values of a run after a step, and where the run stands.
// This is the reading side; checkpoint_writer.h has the writing one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/safetensors.h"
#include "base/tensor.h"
#include "runtime/checkpoint_manifest.h"

namespace tesser::runtime {

// CRC-32C of the file without the line that states its own checksum, as `program_checksum` has it: whether a program
// carries one, it is the same program.
Result<std::string> program_checksum(const std::filesystem::path& program_json);

// A complete checkpoint whose checksums were verified; maps its shards. Move-only; any number of threads may read.
class Checkpoint {
 public:
  // `path` is a checkpoint directory, of which the newest complete checkpoint is taken, or one of its step-N
  // directories. What was passed over, and why, is appended to `notes`, a sentence each. kNotFound when there is no
  // complete checkpoint. Reads every byte once.
  static Result<Checkpoint> open(const std::filesystem::path& path, std::vector<std::string>& notes);
  // A step-N directory whose checksums another process of this run has just verified; reads the manifest only.
  static Result<Checkpoint> open_verified(const std::filesystem::path& step_directory);
  Checkpoint(Checkpoint&& other) noexcept;
  Checkpoint& operator=(Checkpoint&& other) noexcept;
  ~Checkpoint();

  const std::filesystem::path& path() const { return path_; }
  const CheckpointInfo& info() const { return info_; }
  const std::vector<StateValue>& values() const { return values_; }

  // The content of a value, in memory of the checkpoint; nothing when it has none of this name. A value that lies in
  // several parts is put together when it is first asked for, and then stays.
  std::optional<TensorView> find(const std::string& name) const;

  // Copies a rectangle of a value, without putting it together, to `target`, which has the rectangle's shape.
  // kInvalidInput when there is no value of this name, type and whole shape.
  Result<void> read_part(const std::string& name, const Shape& whole, const Shape& begin,
                         const MutableTensorView& target) const;

 private:
  struct Content;
  Checkpoint();
  static Result<Checkpoint> read(const std::filesystem::path& step_directory, bool verify);

  std::filesystem::path path_;
  CheckpointInfo info_;
  std::vector<StateValue> values_;
  std::map<std::string, SafetensorsFile> shards_;  // by file name
  std::map<std::string, std::unique_ptr<Content>> contents_;
};

// One entry of a checkpoint directory whose name is of this format.
struct CheckpointEntry {
  std::int64_t step = 0;
  std::string suffix;  // empty for a complete one, else ".writing", ".removing" or ".damaged"
  std::filesystem::path path;
};

// The entries, newest first. Other files are left out. kNotFound when there is no such directory.
Result<std::vector<CheckpointEntry>> checkpoint_entries(const std::filesystem::path& directory);

// "step-00000120"
std::string checkpoint_name(std::int64_t step);

}  // namespace tesser::runtime
