#include "runtime/checkpoint.h"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "graph/names.h"
#include "runtime/checksum.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view kFormat = "tesser.checkpoint";
constexpr std::int64_t kVersion = 1;
constexpr std::string_view kPrefix = "step-";
constexpr std::size_t kStepDigits = 8;  // at least

std::string json_strings(const std::vector<std::string>& strings) {
  std::string text = "[";
  for (const std::string& string : strings) {
    text += (text.size() > 1 ? "," : "") + json_string(string);
  }
  return text + "]";
}

// Reads the members of a JSON object; remembers the first thing that was not as expected.
class Reader {
 public:
  Reader(const Json& json, std::string what) : json_(json), what_(std::move(what)) {
    if (json_.object() == nullptr) {
      fail("is not an object");
    }
  }

  std::string string(std::string_view key) { return take(key, "a string", std::string()); }
  std::int64_t integer(std::string_view key, std::int64_t least) {
    const std::int64_t value = take(key, "an integer", least);
    if (value < least) {
      fail(fmt::format("'{}' is {}, expected at least {}", key, value, least));
    }
    return value;
  }
  bool boolean(std::string_view key) { return take(key, "true or false", false); }
  const Json::Array& array(std::string_view key) {
    static const Json::Array kEmpty;
    const Json* found = json_.find(key);
    if (found == nullptr || found->array() == nullptr) {
      fail(fmt::format("'{}' is missing or not an array", key));
      return kEmpty;
    }
    return *found->array();
  }
  bool has(std::string_view key) const { return json_.find(key) != nullptr; }
  void fail(std::string reason) {
    if (error_.empty()) {
      error_ = what_ + ": " + std::move(reason);
    }
  }
  Result<void> outcome() const { return error_.empty() ? Result<void>() : invalid_input(error_); }

 private:
  template <typename T>
  T take(std::string_view key, std::string_view expected, T otherwise) {
    const Json* found = json_.find(key);
    const T* value = found != nullptr ? found->get<T>() : nullptr;
    if (value == nullptr) {
      fail(fmt::format("'{}' is missing or not {}", key, expected));
      return otherwise;
    }
    return *value;
  }

  const Json& json_;
  std::string what_;
  std::string error_;
};

struct Manifest {
  CheckpointInfo info;
  std::vector<StateValue> values;
  std::vector<std::string> shard_of;  // file of each value
  std::vector<ShardDescription> shards;
};

Result<std::uint32_t> read_checksum(const std::string& text) {
  std::uint32_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) {
      return invalid_input("'" + text + "' is no checksum");
    }
    value = (value << 4) | static_cast<std::uint32_t>(digit ? c - '0' : c - 'a' + 10);
  }
  if (text.size() != 8) {
    return invalid_input("'" + text + "' is no checksum");
  }
  return value;
}

Result<StateValue> read_value(const Json& json, std::string& shard) {
  Reader reader(json, "values");
  StateValue value;
  value.name = reader.string("name");
  shard = reader.string("shard");
  const std::string role = reader.string("role");
  const auto known_role = graph::input_role_from_name(role);
  const std::string dtype = reader.string("dtype");
  const auto known_dtype = dtype_from_name(dtype);
  for (const Json& dimension : reader.array("shape")) {
    if (dimension.integer() == nullptr || *dimension.integer() < 0) {
      reader.fail("a dimension of '" + value.name + "' is no integer of at least 0");
    } else {
      value.shape.push_back(*dimension.integer());
    }
  }
  if (reader.has("persistent")) {
    value.persistent = reader.boolean("persistent");
  }
  if (reader.has("aliases")) {
    for (const Json& alias : reader.array("aliases")) {
      if (alias.string() == nullptr) {
        reader.fail("an alias of '" + value.name + "' is no string");
      } else {
        value.aliases.push_back(*alias.string());
      }
    }
  }
  TESSER_RETURN_IF_ERROR(reader.outcome());
  if (!known_role) {
    return invalid_input("unknown role '" + role + "' of '" + value.name + "'");
  }
  if (!known_dtype || !checked_bytes(*known_dtype, value.shape)) {
    return invalid_input("impossible type " + dtype + shape_text(value.shape) + " of '" + value.name + "'");
  }
  value.role = *known_role;
  value.dtype = *known_dtype;
  return value;
}

Result<Manifest> read_manifest(const Path& path) {
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const auto in_file = [&](const Error& error) {
    return tl::unexpected<Error>(Error{error.code, path.string() + ": " + error.message});
  };
  const Result<Json> json = parse_json(text);
  if (!json) {
    return in_file(json.error());
  }
  Reader reader(*json, path.string());
  if (const std::string format = reader.string("format"); reader.outcome() && format != kFormat) {
    reader.fail("format is '" + format + "', expected '" + std::string(kFormat) + "'");
  }
  if (const std::int64_t version = reader.integer("version", 0); reader.outcome() && version != kVersion) {
    reader.fail(fmt::format("version {} is unknown to this tesser, which reads version {}", version, kVersion));
  }
  TESSER_RETURN_IF_ERROR(reader.outcome());
  Manifest manifest;
  manifest.info.program = reader.string("program");
  manifest.info.program_checksum = reader.string("program_checksum");
  manifest.info.step = reader.integer("step", 0);
  manifest.info.next.epoch = reader.integer("epoch", 0);
  manifest.info.next.batch = reader.integer("batch", 0);
  manifest.info.seed = reader.integer("seed", std::numeric_limits<std::int64_t>::min());
  manifest.info.shuffle = reader.boolean("shuffle");
  manifest.info.data_fingerprint = reader.string("data_fingerprint");
  for (const Json& entry : reader.array("shards")) {
    Reader shard(entry, path.string() + ": shards");
    ShardDescription description;
    description.file = shard.string("file");
    description.bytes = static_cast<std::uint64_t>(shard.integer("bytes", 0));
    const std::string checksum = shard.string("checksum");
    TESSER_RETURN_IF_ERROR(shard.outcome());
    if (description.file.empty() || description.file.find('/') != std::string::npos) {
      return invalid_input(path.string() + ": '" + description.file + "' is no name of a shard");
    }
    const Result<std::uint32_t> number = read_checksum(checksum);
    if (!number) {
      return in_file(number.error());
    }
    description.checksum = *number;
    manifest.shards.push_back(std::move(description));
  }
  for (const Json& entry : reader.array("values")) {
    std::string shard;
    Result<StateValue> value = read_value(entry, shard);
    if (!value) {
      return in_file(value.error());
    }
    manifest.values.push_back(std::move(*value));
    manifest.shard_of.push_back(std::move(shard));
  }
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return manifest;
}

// Size and checksum of a shard as the manifest states them.
Result<void> check_shard(const Path& path, const ShardDescription& description) {
  TESSER_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() != description.bytes) {
    return invalid_input(
        fmt::format("{}: has {} bytes, the manifest says {}", path.string(), bytes.size(), description.bytes));
  }
  if (const std::uint32_t found = crc32c(bytes.data(), bytes.size()); found != description.checksum) {
    return invalid_input(fmt::format("{}: has checksum {}, the manifest says {}", path.string(), checksum_text(found),
                                     checksum_text(description.checksum)));
  }
  return {};
}

// The step and suffix in a name of the format's; nothing for another name.
std::optional<CheckpointEntry> parse_name(const Path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  CheckpointEntry entry;
  entry.path = path;
  std::size_t position = kPrefix.size();
  while (position < name.size() && name[position] >= '0' && name[position] <= '9') {
    if (__builtin_mul_overflow(entry.step, std::int64_t{10}, &entry.step) ||
        __builtin_add_overflow(entry.step, name[position] - '0', &entry.step)) {
      return std::nullopt;
    }
    ++position;
  }
  entry.suffix = name.substr(position);
  const bool known =
      entry.suffix.empty() || entry.suffix == ".writing" || entry.suffix == ".removing" || entry.suffix == ".damaged";
  if (!known || name.substr(0, position) != checkpoint_name(entry.step)) {
    return std::nullopt;
  }
  return entry;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:0{}}", kPrefix, step, kStepDigits); }

std::vector<StateValue> state_values(const graph::Program& program) {
  std::vector<StateValue> values;
  for (const graph::ValueId id : program.inputs) {
    const graph::Value& value = program.value(id);
    if (value.is_state()) {
      values.push_back({value.name, value.role, value.dtype, value.shape, value.persistent, value.aliases});
    }
  }
  return values;
}

Result<std::string> program_checksum(const Path& program_json) {
  TESSER_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(program_json));
  return checksum_text(crc32c(file.bytes().data(), file.bytes().size()));
}

std::string manifest_text(const CheckpointInfo& info, const std::vector<StateValue>& values,
                          const std::vector<ShardDescription>& shards, const std::vector<std::size_t>& shard_of) {
  std::string text = fmt::format(
      "{{\"format\":\"{}\",\"version\":{},\"program\":{},\"program_checksum\":{},\n\"step\":{},\"epoch\":{},\"batch\":{"
      "},\"seed\":{},\"shuffle\":{},"
      "\"data_fingerprint\":{},\n\"shards\":[",
      kFormat, kVersion, json_string(info.program), json_string(info.program_checksum), info.step, info.next.epoch,
      info.next.batch, info.seed, info.shuffle, json_string(info.data_fingerprint));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    text += fmt::format("{}\n{{\"file\":{},\"bytes\":{},\"checksum\":\"{}\"}}", i > 0 ? "," : "",
                        json_string(shards[i].file), shards[i].bytes, checksum_text(shards[i].checksum));
  }
  text += "\n],\n\"values\":[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    const StateValue& value = values[i];
    text += fmt::format("{}\n{{\"name\":{},\"role\":\"{}\",\"dtype\":\"{}\",\"shape\":[{}],\"shard\":{}",
                        i > 0 ? "," : "", json_string(value.name), graph::role_name(value.role),
                        dtype_name(value.dtype), fmt::join(value.shape, ","), json_string(shards[shard_of[i]].file));
    if (value.role == graph::Role::kBuffer) {
      text += fmt::format(",\"persistent\":{}", value.persistent);
    }
    if (!value.aliases.empty()) {
      text += ",\"aliases\":" + json_strings(value.aliases);
    }
    text += "}";
  }
  return text + "\n]}\n";
}

Result<std::vector<CheckpointEntry>> checkpoint_entries(const Path& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  if (error) {
    return tl::unexpected<Error>(file_error(directory, "read", error.value()));
  }
  std::vector<CheckpointEntry> entries;
  for (const std::filesystem::directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (auto parsed = parse_name(entry->path())) {
      entries.push_back(std::move(*parsed));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return std::pair(b.step, a.suffix) < std::pair(a.step, b.suffix);
  });
  return entries;
}

Result<Checkpoint> Checkpoint::read(const Path& step_directory) {
  TESSER_ASSIGN_OR_RETURN(Manifest manifest, read_manifest(step_directory / "manifest.json"));
  Checkpoint checkpoint;
  checkpoint.path_ = step_directory;
  for (const ShardDescription& shard : manifest.shards) {
    TESSER_RETURN_IF_ERROR(check_shard(step_directory / shard.file, shard));
    TESSER_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(step_directory / shard.file));
    checkpoint.shards_.emplace(shard.file, std::move(file));
  }
  for (std::size_t i = 0; i < manifest.values.size(); ++i) {
    const StateValue& value = manifest.values[i];
    const auto shard = checkpoint.shards_.find(manifest.shard_of[i]);
    const SafetensorsEntry* content = shard != checkpoint.shards_.end() ? shard->second.find(value.name) : nullptr;
    if (content == nullptr || content->dtype != value.dtype || content->shape != value.shape) {
      return invalid_input(
          fmt::format("{}: '{}' should be {}, {}", (step_directory / manifest.shard_of[i]).string(), value.name,
                      type_text(value.dtype, value.shape),
                      content == nullptr ? "is missing" : "is " + type_text(content->dtype, content->shape)));
    }
    if (!checkpoint.contents_.emplace(value.name, shard->second.view(*content)).second) {
      return invalid_input(
          fmt::format("{}: names '{}' twice", (step_directory / "manifest.json").string(), value.name));
    }
  }
  checkpoint.info_ = std::move(manifest.info);
  checkpoint.values_ = std::move(manifest.values);
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open(const Path& path, std::vector<std::string>& notes) {
  std::error_code error;
  if (std::filesystem::exists(path / "manifest.json", error)) {
    return read(path);
  }
  TESSER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, checkpoint_entries(path));
  for (const CheckpointEntry& entry : entries) {
    if (entry.suffix == ".writing") {
      notes.push_back(entry.path.string() + " was not finished and is not used");
    } else if (entry.suffix.empty()) {
      Result<Checkpoint> checkpoint = read(entry.path);
      if (checkpoint) {
        return checkpoint;
      }
      notes.push_back(fmt::format("{} is damaged and not used ({})", entry.path.string(), checkpoint.error().message));
    }
  }
  std::string message = path.string() + ": holds no complete checkpoint";
  for (const std::string& note : notes) {
    message += "; " + note;
  }
  return not_found(message);
}

std::optional<TensorView> Checkpoint::find(const std::string& name) const {
  const auto found = contents_.find(name);
  return found != contents_.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace tesser::runtime
