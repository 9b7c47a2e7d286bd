#include "runtime/checkpoint_manifest.h"

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/own_checksum.h"
#include "graph/names.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view kFormat = "tesser.checkpoint";
constexpr std::int64_t kVersion = 3;
constexpr std::int64_t kOldestVersion = 1;
constexpr std::int64_t kFirstWithChecksum = 3;

std::string json_strings(const std::vector<std::string>& strings) {
  std::string text = "[";
  for (const std::string& string : strings) {
    text += (text.size() > 1 ? "," : "") + json_string(string);
  }
  return text + "]";
}

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

Shape read_sizes(JsonReader& reader, std::string_view key) {
  Shape sizes = reader.integers(key);
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      reader.fail(fmt::format("'{}' holds {}", key, size));
    }
  }
  return sizes;
}

// Reads one entry of "values" and appends it and its parts. `shards` gives the shards' places by file.
Result<void> read_value(const Json& json, const std::map<std::string, std::size_t>& shards, Manifest& manifest) {
  JsonReader reader(json, "values");
  StateValue value;
  value.name = reader.string("name");
  const std::string role = reader.string("role");
  const auto known_role = graph::input_role_from_name(role);
  const std::string dtype = reader.string("dtype");
  const auto known_dtype = dtype_from_name(dtype);
  value.shape = read_sizes(reader, "shape");
  if (reader.has("persistent")) {
    value.persistent = reader.boolean("persistent");
  }
  if (reader.has("aliases")) {
    value.aliases = reader.strings("aliases");
  }
  const std::size_t place = manifest.values.size();
  const auto add_part = [&](JsonReader& part, Rectangle rectangle) {
    const std::string file = part.string("shard");
    const auto shard = shards.find(file);
    if (shard == shards.end()) {
      reader.fail(fmt::format("'{}' is in '{}', which is no shard", value.name, file));
    } else {
      manifest.parts.push_back({place, shard->second, std::move(rectangle)});
    }
  };
  if (reader.has("parts")) {
    for (const Json& entry : reader.array("parts")) {
      JsonReader part(entry, "part of '" + value.name + "'");
      Rectangle rectangle{read_sizes(part, "begin"), read_sizes(part, "size")};
      add_part(part, std::move(rectangle));
      TESSER_RETURN_IF_ERROR(part.outcome());
    }
  } else {
    add_part(reader, whole_rectangle(value.shape));
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
  manifest.values.push_back(std::move(value));
  return {};
}

// Whether the parts of one value cover it, none of its elements twice.
Result<void> check_parts(const StateValue& value, std::span<const StatePart> parts) {
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!lies_inside(parts[i].place, value.shape)) {
      return invalid_input(fmt::format("a part of '{}' lies outside of it", value.name));
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (element_count(intersection(parts[i].place, parts[k].place).size) > 0) {
        return invalid_input(fmt::format("parts {} and {} of '{}' overlap", rectangle_text(parts[k].place),
                                         rectangle_text(parts[i].place), value.name));
      }
    }
    elements += element_count(parts[i].place.size);
  }
  if (elements != element_count(value.shape)) {
    return invalid_input(fmt::format("the parts of '{}' have {} elements, the value has {}", value.name, elements,
                                     element_count(value.shape)));
  }
  return {};
}

}  // namespace

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

std::string manifest_text(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  std::string text = fmt::format(
      "{{\"format\":\"{}\",\"version\":{},\n\"program\":{},\"program_checksum\":{},\n\"step\":{},\"epoch\":{},"
      "\"batch\":{"
      "},\"seed\":{},\"shuffle\":{},"
      "\"data_fingerprint\":{},\n\"shards\":[",
      kFormat, kVersion, json_string(info.program), json_string(info.program_checksum), info.step, info.next.epoch,
      info.next.batch, info.seed, info.shuffle, json_string(info.data_fingerprint));
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    const ShardDescription& shard = manifest.shards[i];
    text += fmt::format("{}\n{{\"file\":{},\"bytes\":{},\"checksum\":\"{}\"}}", i > 0 ? "," : "",
                        json_string(shard.file), shard.bytes, checksum_text(shard.checksum));
  }
  text += "\n],\n\"values\":[";
  auto part = manifest.parts.begin();
  for (std::size_t i = 0; i < manifest.values.size(); ++i) {
    const StateValue& value = manifest.values[i];
    text += fmt::format("{}\n{{\"name\":{},\"role\":\"{}\",\"dtype\":\"{}\",\"shape\":[{}]", i > 0 ? "," : "",
                        json_string(value.name), graph::role_name(value.role), dtype_name(value.dtype),
                        fmt::join(value.shape, ","));
    const auto first = part;
    while (part != manifest.parts.end() && part->value == i) {
      ++part;
    }
    const auto file = [&](const StatePart& of) { return json_string(manifest.shards[of.shard].file); };
    if (part - first == 1) {
      text += ",\"shard\":" + file(*first);
    } else {
      std::string parts;
      for (auto each = first; each != part; ++each) {
        parts += fmt::format("{}{{\"shard\":{},\"begin\":[{}],\"size\":[{}]}}", parts.empty() ? "" : ",", file(*each),
                             fmt::join(each->place.begin, ","), fmt::join(each->place.size, ","));
      }
      text += ",\"parts\":[" + parts + "]";
    }
    if (value.role == graph::Role::kBuffer) {
      text += fmt::format(",\"persistent\":{}", value.persistent);
    }
    if (!value.aliases.empty()) {
      text += ",\"aliases\":" + json_strings(value.aliases);
    }
    text += "}";
  }
  return with_checksum(text + "\n]}\n");
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
  if (const Result<void> checked = check_own_checksum(text, *json, ""); !checked) {
    return in_file(checked.error());
  }
  JsonReader reader(*json, path.string());
  if (const std::string format = reader.string("format"); reader.outcome() && format != kFormat) {
    reader.fail("format is '" + format + "', expected '" + std::string(kFormat) + "'");
  }
  if (const std::int64_t version = reader.integer("version", 0);
      reader.outcome() && (version < kOldestVersion || version > kVersion)) {
    reader.fail(fmt::format("version {} is unknown to this tesser, which reads versions {} to {}", version,
                            kOldestVersion, kVersion));
  } else if (version >= kFirstWithChecksum) {
    reader.string("checksum");
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
  std::map<std::string, std::size_t> places;
  for (const Json& entry : reader.array("shards")) {
    JsonReader shard(entry, path.string() + ": shards");
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
    places.emplace(description.file, manifest.shards.size());
    manifest.shards.push_back(std::move(description));
  }
  for (const Json& entry : reader.array("values")) {
    const std::size_t first = manifest.parts.size();
    Result<void> read = read_value(entry, places, manifest);
    if (read) {
      read = check_parts(manifest.values.back(), std::span(manifest.parts).subspan(first));
    }
    if (!read) {
      return in_file(read.error());
    }
  }
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return manifest;
}

}  // namespace tesser::runtime
