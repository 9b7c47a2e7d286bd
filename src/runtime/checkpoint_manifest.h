// manifest.json of a checkpoint (docs/formats/checkpoint.md): where a run stands, and which shard holds which part of
// its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "graph/program.h"
#include "runtime/loader.h"
#include "runtime/rectangle.h"

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

// A file of a checkpoint, as it must be.
struct ShardDescription {
  std::string file;
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;
};

// A rectangle of a value, which a shard holds under the value's name.
struct StatePart {
  std::size_t value = 0;  // its place among the manifest's
  std::size_t shard = 0;  // likewise
  Rectangle place;
};

struct Manifest {
  CheckpointInfo info;
  std::vector<StateValue> values;
  std::vector<ShardDescription> shards;
  std::vector<StatePart> parts;  // value after value
};

std::string manifest_text(const Manifest& manifest);

// Parts cover each value, none twice. Errors name the file: kNotFound when there is none, else kInvalidInput.
Result<Manifest> read_manifest(const std::filesystem::path& path);

}  // namespace tesser::runtime
