#include "base/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "base/json.h"

namespace tesser {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr std::uint64_t kAlignment = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

// In the order of DType.
constexpr std::array<std::string_view, 10> kNames{"F32", "F64", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"};

std::string_view safetensors_name(DType dtype) { return kNames[static_cast<std::size_t>(dtype)]; }

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? std::nullopt : std::optional(static_cast<DType>(found - kNames.begin()));
}

// Non-negative integers of a JSON array; nothing for anything else.
std::optional<std::vector<std::int64_t>> counts(const Json* json) {
  if (json == nullptr || json->array() == nullptr) {
    return std::nullopt;
  }
  std::vector<std::int64_t> numbers;
  for (const Json& entry : *json->array()) {
    if (entry.integer() == nullptr || *entry.integer() < 0) {
      return std::nullopt;
    }
    numbers.push_back(*entry.integer());
  }
  return numbers;
}

// Appends it to the header's entries or others.
Result<void> parse_entry(const std::string& name, const Json& json, std::uint64_t data_bytes,
                         SafetensorsHeader& header) {
  const auto refuse = [&](const std::string& reason) {
    return invalid_input("tensor " + json_string(name.substr(0, 200)) + ": " + reason);
  };
  if (json.object() == nullptr || json.object()->size() != 3) {
    return refuse("is not an object of dtype, shape and data_offsets");
  }
  const Json* const dtype = json.find("dtype");
  if (dtype == nullptr || dtype->string() == nullptr) {
    return refuse("'dtype' is missing or not a string");
  }
  const auto shape = counts(json.find("shape"));
  if (!shape.has_value()) {
    return refuse("'shape' is missing or not an array of integers from 0 on");
  }
  const auto known = dtype_from_safetensors(*dtype->string());
  const auto bytes = checked_bytes(known.value_or(DType::kInt8), *shape);
  if (known.has_value() && !bytes.has_value()) {
    return refuse("shape " + shape_text(*shape) + " is too large");
  }
  const auto offsets = counts(json.find("data_offsets"));
  if (!offsets.has_value() || offsets->size() != 2) {
    return refuse("'data_offsets' is missing or not an array of two integers from 0 on");
  }
  const auto begin = static_cast<std::uint64_t>((*offsets)[0]);
  const auto end = static_cast<std::uint64_t>((*offsets)[1]);
  if (begin > end || end > data_bytes) {
    return refuse("lies at bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
                  std::to_string(data_bytes) + "; the file is cut short or damaged");
  }
  if (!known.has_value()) {
    header.others.push_back({name, *dtype->string(), begin, end - begin});
    return {};
  }
  if (end - begin != static_cast<std::uint64_t>(*bytes)) {
    return refuse("has " + std::to_string(end - begin) + " bytes, but " + type_text(*known, *shape) + " needs " +
                  std::to_string(*bytes));
  }
  header.entries.push_back({name, *known, *shape, begin, end - begin});
  return {};
}

// Whether the tensors cover the data, none of its bytes twice; sorts both lists.
Result<void> check_places(SafetensorsHeader& header, std::uint64_t data_bytes) {
  const auto before = [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  };
  std::sort(header.entries.begin(), header.entries.end(), before);
  std::sort(header.others.begin(), header.others.end(), before);
  std::uint64_t end = 0;
  auto entry = header.entries.begin();
  auto other = header.others.begin();
  const auto follows = [&](const auto& tensor) -> Result<void> {
    if (tensor.offset != end) {
      return invalid_input("tensor " + json_string(tensor.name.substr(0, 200)) + ": begins at byte " +
                           std::to_string(tensor.offset) + ", but the tensor before it ends at byte " +
                           std::to_string(end));
    }
    end = tensor.offset + tensor.bytes;
    return {};
  };
  while (entry != header.entries.end() || other != header.others.end()) {
    const bool take_entry = other == header.others.end() || (entry != header.entries.end() && before(*entry, *other));
    TESSER_RETURN_IF_ERROR(take_entry ? follows(*entry++) : follows(*other++));
  }
  if (end != data_bytes) {
    return invalid_input("has " + std::to_string(data_bytes) + " bytes of data, but its tensors only " +
                         std::to_string(end));
  }
  return {};
}

Result<SafetensorsMetadata> parse_metadata(const Json& json) {
  SafetensorsMetadata metadata;
  if (json.object() == nullptr) {
    return invalid_input("'__metadata__' is not an object");
  }
  for (const auto& [key, value] : *json.object()) {
    if (value.string() == nullptr) {
      return invalid_input("'__metadata__' holds something other than strings");
    }
    metadata.emplace_back(key, *value.string());
  }
  return metadata;
}

std::string header_text(const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += text.back() == '{' ? "" : ",";
      append_json_string(text, key);
      text += ':';
      append_json_string(text, value);
    }
    text += '}';
  }
  for (const SafetensorsEntry& entry : entries) {
    text += text.back() == '{' ? "" : ",";
    append_json_string(text, entry.name);
    text += ":{\"dtype\":\"" + std::string(safetensors_name(entry.dtype)) + "\",\"shape\":[";
    for (std::size_t index = 0; index < entry.shape.size(); ++index) {
      text += (index == 0 ? "" : ",") + std::to_string(entry.shape[index]);
    }
    text +=
        "],\"data_offsets\":[" + std::to_string(entry.offset) + "," + std::to_string(entry.offset + entry.bytes) + "]}";
  }
  text += '}';
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  return text;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return invalid_input("is no safetensors file: it has " + std::to_string(file.size()) +
                         " bytes, too few for a header");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kLargestHeader) {
    return invalid_input("is no safetensors file: it claims a header of " + std::to_string(length) +
                         " bytes, at most " + std::to_string(kLargestHeader) + " are allowed");
  }
  if (length > file.size() - kLengthBytes) {
    return invalid_input("is cut short: its header has " + std::to_string(length) + " bytes, the whole file " +
                         std::to_string(file.size()));
  }
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + length;
  const std::uint64_t data_bytes = file.size() - header.data_begin;
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  Result<Json> json = parse_json(text, {.depth = 8, .values = 20'000'000});
  if (!json.has_value()) {
    return invalid_input("header: " + json.error().message);
  }
  if (json->object() == nullptr) {
    return invalid_input("header: is not a JSON object");
  }
  for (const auto& [name, value] : *json->object()) {
    if (name == kMetadataKey) {
      TESSER_ASSIGN_OR_RETURN(header.metadata, parse_metadata(value));
    } else {
      TESSER_RETURN_IF_ERROR(parse_entry(name, value, data_bytes, header));
    }
  }
  TESSER_RETURN_IF_ERROR(check_places(header, data_bytes));
  return header;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path;
  TESSER_ASSIGN_OR_RETURN(file.file_, MappedFile::open(path));
  Result<SafetensorsHeader> header = parse_safetensors_header(file.file_.bytes());
  if (!header.has_value()) {
    return invalid_input(path.string() + ": " + header.error().message);
  }
  file.header_ = std::move(*header);
  for (std::size_t place = 0; place < file.header_.entries.size(); ++place) {
    file.places_.emplace(file.header_.entries[place].name, place);
  }
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &header_.entries[found->second];
}

std::string SafetensorsFile::absence(std::string_view name) const {
  const auto other = std::find_if(header_.others.begin(), header_.others.end(),
                                  [&](const SafetensorsOther& each) { return each.name == name; });
  const std::string shown(name);
  return other == header_.others.end() ? "has no tensor '" + shown + "'"
                                       : "tensor '" + shown + "' has dtype " + json_string(other->dtype.substr(0, 40)) +
                                             ", which is not supported";
}

TensorView SafetensorsFile::view(const SafetensorsEntry& entry) const {
  return {entry.dtype, entry.shape, file_.bytes().data() + header_.data_begin + entry.offset};
}

SafetensorsWriter::SafetensorsWriter(AtomicFile file, std::vector<SafetensorsEntry> entries, std::uint64_t data_begin)
    : file_(std::move(file)), entries_(std::move(entries)), data_begin_(data_begin), written_(entries_.size()) {
  for (std::size_t place = 0; place < entries_.size(); ++place) {
    const bool is_new = places_.emplace(entries_[place].name, place).second;
    TESSER_CHECK(is_new && entries_[place].name != kMetadataKey, "tensor name " + entries_[place].name);
  }
}

Result<SafetensorsWriter> SafetensorsWriter::create(AtomicFile file, std::vector<SafetensorsEntry> entries,
                                                    const SafetensorsMetadata& metadata) {
  // Larger elements first: every tensor is aligned to its elements without gaps, which the format does not allow.
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    const std::size_t a_size = element_size(a.dtype);
    const std::size_t b_size = element_size(b.dtype);
    return a_size != b_size ? a_size > b_size : a.name < b.name;
  });
  std::uint64_t end = 0;
  for (SafetensorsEntry& entry : entries) {
    const auto bytes = checked_bytes(entry.dtype, entry.shape);
    TESSER_CHECK(bytes.has_value(), "shape " + shape_text(entry.shape));
    entry.offset = end;
    entry.bytes = static_cast<std::uint64_t>(*bytes);
    end += entry.bytes;
  }
  const std::string header = header_text(entries, metadata);
  if (header.size() > kLargestHeader) {
    return invalid_input(file.path().string() + ": has too many tensors for one safetensors file");
  }
  const std::uint64_t length = header.size();
  TESSER_RETURN_IF_ERROR(file.append({reinterpret_cast<const char*>(&length), sizeof(length)}));
  TESSER_RETURN_IF_ERROR(file.append(header));
  return SafetensorsWriter(std::move(file), std::move(entries), kLengthBytes + length);
}

Result<void> SafetensorsWriter::write(const std::string& name, const TensorView& tensor) {
  const auto found = places_.find(name);
  TESSER_CHECK(found != places_.end(), "tensor " + name + ", which was not announced");
  const SafetensorsEntry& entry = entries_[found->second];
  TESSER_CHECK(
      entry.dtype == tensor.dtype && entry.shape == tensor.shape,
      type_text(tensor.dtype, tensor.shape) + " for " + name + ", announced as " + type_text(entry.dtype, entry.shape));
  TESSER_RETURN_IF_ERROR(file_.write_at(data_begin_ + entry.offset, tensor.data, entry.bytes));
  written_[found->second] = true;
  return {};
}

Result<void> SafetensorsWriter::commit() {
  const auto missing = std::find(written_.begin(), written_.end(), false);
  TESSER_CHECK(missing == written_.end(),
               "no bytes for " + entries_[static_cast<std::size_t>(missing - written_.begin())].name);
  return file_.commit();
}

}  // namespace tesser
