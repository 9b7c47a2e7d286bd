// Checkpoints as docs/formats/checkpoint.md describes them: the values of a run after a step, and where the run stands.
// This is the reading side; checkpoint_writer.h has the writing one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/safetensors.h"
#include "base/tensor.h"
#include "graph/program.h"
#include "runtime/loader.h"

namespace tesser::runtime {

// A state value: what a checkpoint keeps and `tesser export` needs to know.
struct StateValue {
  std::string name;
  graph::Role role = graph::Role::kParameter;  // parameter, optimizer_state or buffer
  DType dtype = DType::kFloat32;
  Shape shape;
  bool persistent = true;
  std::vector<std::string> aliases;

  bool in_state_dict() const { return role == graph::Role::kParameter || (role == graph::Role::kBuffer && persistent); }
};

// The state values among the program's inputs, in their order.
std::vector<StateValue> state_values(const graph::Program& program);

// Where a run stands.
struct CheckpointInfo {
  std::string program;           // its name
  std::string program_checksum;  // of program.json
  std::int64_t step = 0;         // steps done
  DataPosition next;             // the batch that the next step takes
  std::int64_t seed = 0;
  bool shuffle = true;
  std::string data_fingerprint;
};

// Checksum of the file, as `program_checksum` has it.
Result<std::string> program_checksum(const std::filesystem::path& program_json);

// A complete checkpoint whose checksums were verified; maps its shards. Move-only, immutable.
class Checkpoint {
 public:
  // `path` is a checkpoint directory, of which the newest complete checkpoint is taken, or one of its step-N
  // directories. What was passed over, and why, is appended to `notes`, a sentence each. kNotFound when there is no
  // complete checkpoint. Reads every byte once.
  static Result<Checkpoint> open(const std::filesystem::path& path, std::vector<std::string>& notes);

  const std::filesystem::path& path() const { return path_; }
  const CheckpointInfo& info() const { return info_; }
  const std::vector<StateValue>& values() const { return values_; }

  // The content of a value, in memory of the checkpoint; nothing when it has none of this name.
  std::optional<TensorView> find(const std::string& name) const;

 private:
  static Result<Checkpoint> read(const std::filesystem::path& step_directory);

  std::filesystem::path path_;
  CheckpointInfo info_;
  std::vector<StateValue> values_;
  std::map<std::string, SafetensorsFile> shards_;  // by file name
  std::map<std::string, TensorView> contents_;
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

// Text of manifest.json. `shards` lists file, bytes and checksum; `shard_of` the index of each value's shard.
struct ShardDescription {
  std::string file;
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;
};
std::string manifest_text(const CheckpointInfo& info, const std::vector<StateValue>& values,
                          const std::vector<ShardDescription>& shards, const std::vector<std::size_t>& shard_of);

}  // namespace tesser::runtime
