#include "runtime/checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/own_checksum.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view kPrefix = "step-";
constexpr std::size_t kStepDigits = 8;  // at least

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

// A step-N directory holds the checkpoint after N steps; one of another name (a copy that a person made) any.
Result<void> check_step(const Path& step_directory, std::int64_t step) {
  Path whole = std::filesystem::absolute(step_directory).lexically_normal();
  if (!whole.has_filename()) {
    whole = whole.parent_path();
  }
  const std::optional<CheckpointEntry> named = parse_name(whole);
  if (named && named->step != step) {
    return invalid_input(fmt::format("{}: is the checkpoint after step {}, which its directory's name does not say",
                                     (step_directory / "manifest.json").string(), step));
  }
  return {};
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:0{}}", kPrefix, step, kStepDigits); }

Result<std::string> program_checksum(const Path& program_json) {
  TESSER_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(program_json));
  const std::string text = without_checksum({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  return checksum_text(crc32c(text.data(), text.size()));
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

// A value and where its parts lie in the mapped shards.
struct Checkpoint::Content {
  struct Part {
    const void* data;
    Rectangle place;
  };
  StateValue value;
  std::vector<Part> parts;
  std::once_flag once;                 // guards what follows
  std::unique_ptr<std::byte[]> whole;  // when there are several parts and find() has been asked

  // The parts of `region`, which `target` holds.
  void copy(const Rectangle& region, std::byte* target) const {
    for (const Part& part : parts) {
      const Rectangle common = intersection(part.place, region);
      copy_rectangle(element_size(value.dtype), common, static_cast<const std::byte*>(part.data), part.place, target,
                     region);
    }
  }
};

Checkpoint::Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&& other) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&& other) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::read(const Path& step_directory, bool verify) {
  TESSER_ASSIGN_OR_RETURN(Manifest manifest, read_manifest(step_directory / "manifest.json"));
  TESSER_RETURN_IF_ERROR(check_step(step_directory, manifest.info.step));
  Checkpoint checkpoint;
  checkpoint.path_ = step_directory;
  for (const ShardDescription& shard : manifest.shards) {
    if (verify) {
      TESSER_RETURN_IF_ERROR(check_shard(step_directory / shard.file, shard));
    }
    TESSER_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(step_directory / shard.file));
    checkpoint.shards_.emplace(shard.file, std::move(file));
  }
  std::vector<Content*> contents;
  for (const StateValue& value : manifest.values) {
    auto content = std::make_unique<Content>();
    content->value = value;
    contents.push_back(content.get());
    if (!checkpoint.contents_.emplace(value.name, std::move(content)).second) {
      return invalid_input(
          fmt::format("{}: names '{}' twice", (step_directory / "manifest.json").string(), value.name));
    }
  }
  for (const StatePart& part : manifest.parts) {
    const StateValue& value = manifest.values[part.value];
    const std::string& file = manifest.shards[part.shard].file;
    const SafetensorsFile& shard = checkpoint.shards_.at(file);
    const SafetensorsEntry* entry = shard.find(value.name);
    if (entry == nullptr || entry->dtype != value.dtype || entry->shape != part.place.size) {
      return invalid_input(
          fmt::format("{}: '{}' should be {}, {}", (step_directory / file).string(), value.name,
                      type_text(value.dtype, part.place.size),
                      entry == nullptr ? "is missing" : "is " + type_text(entry->dtype, entry->shape)));
    }
    contents[part.value]->parts.push_back({shard.view(*entry).data, part.place});
  }
  checkpoint.info_ = std::move(manifest.info);
  checkpoint.values_ = std::move(manifest.values);
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open_verified(const Path& step_directory) { return read(step_directory, false); }

Result<Checkpoint> Checkpoint::open(const Path& path, std::vector<std::string>& notes) {
  std::error_code error;
  if (std::filesystem::exists(path / "manifest.json", error)) {
    return read(path, true);
  }
  TESSER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, checkpoint_entries(path));
  for (const CheckpointEntry& entry : entries) {
    if (entry.suffix == ".writing") {
      notes.push_back(entry.path.string() + " was not finished and is not used");
    } else if (entry.suffix.empty()) {
      Result<Checkpoint> checkpoint = read(entry.path, true);
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
  if (found == contents_.end()) {
    return std::nullopt;
  }
  Content& content = *found->second;
  const StateValue& value = content.value;
  if (content.parts.size() == 1) {
    return TensorView{value.dtype, value.shape, content.parts.front().data};
  }
  std::call_once(content.once, [&] {
    const auto bytes = static_cast<std::size_t>(element_count(value.shape)) * element_size(value.dtype);
    content.whole = std::make_unique_for_overwrite<std::byte[]>(bytes);
    content.copy(whole_rectangle(value.shape), content.whole.get());
  });
  return TensorView{value.dtype, value.shape, content.whole.get()};
}

Result<void> Checkpoint::read_part(const std::string& name, const Shape& whole, const Shape& begin,
                                   const MutableTensorView& target) const {
  const auto found = contents_.find(name);
  if (found == contents_.end()) {
    return invalid_input(fmt::format("{}: has no '{}', which the program needs", path_.string(), name));
  }
  const Content& content = *found->second;
  if (content.value.dtype != target.dtype || content.value.shape != whole) {
    return invalid_input(fmt::format("{}: '{}' is {}, the program expects {}", path_.string(), name,
                                     type_text(content.value.dtype, content.value.shape),
                                     type_text(target.dtype, whole)));
  }
  content.copy({begin, target.shape}, static_cast<std::byte*>(target.data));
  return {};
}

}  // namespace tesser::runtime
