#include "runtime/data.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "runtime/npy.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;

enum class TokenType : std::uint8_t { kUInt8, kUInt16, kUInt32, kInt32, kInt64 };

struct NamedTokenType {
  std::string_view name;
  TokenType type;
  std::size_t bytes;
  bool fits_int32;
};
constexpr NamedTokenType kTokenTypes[] = {
    {"uint8", TokenType::kUInt8, 1, true},    {"uint16", TokenType::kUInt16, 2, true},
    {"uint32", TokenType::kUInt32, 4, false}, {"int32", TokenType::kInt32, 4, true},
    {"int64", TokenType::kInt64, 8, false},
};

template <typename From, typename To>
void widen(const std::byte* from, std::size_t count, To* to) {
  for (std::size_t i = 0; i < count; ++i) {
    From token;
    std::memcpy(&token, from + i * sizeof(From), sizeof(From));
    to[i] = static_cast<To>(token);
  }
}

template <typename To>
void widen(TokenType type, const std::byte* from, std::size_t count, To* to) {
  switch (type) {
    case TokenType::kUInt8:
      return widen<std::uint8_t>(from, count, to);
    case TokenType::kUInt16:
      return widen<std::uint16_t>(from, count, to);
    case TokenType::kUInt32:
      return widen<std::uint32_t>(from, count, to);
    case TokenType::kInt32:
      return widen<std::int32_t>(from, count, to);
    case TokenType::kInt64:
      return widen<std::int64_t>(from, count, to);
  }
}

Shape sample_shape(const BatchValue& value) { return {value.shape.begin() + 1, value.shape.end()}; }

// "float32[N, 1, 28, 28]"
std::string expected_type(const BatchValue& value) {
  std::string text(dtype_name(value.dtype));
  text += "[N";
  for (const std::int64_t dimension : sample_shape(value)) {
    text += fmt::format(", {}", dimension);
  }
  return text + "]";
}

// Names in a directory, for the message about one that is missing.
std::string names_in(const Path& directory) {
  constexpr std::size_t kShown = 12;
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (names.empty()) {
    return "the directory is empty";
  }
  std::sort(names.begin(), names.end());
  const std::size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  return fmt::format("the directory holds {}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

bool is_there(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

// Where the samples of one value lie.
class DataSet::Source {
 public:
  // An array of whole samples, which `owner` keeps mapped.
  static Result<Source> array(Path file, const BatchValue& value, const TensorView& view,
                              std::shared_ptr<const void> owner) {
    if (view.dtype != value.dtype || view.shape.empty() ||
        !std::equal(view.shape.begin() + 1, view.shape.end(), value.shape.begin() + 1, value.shape.end())) {
      return invalid_input(fmt::format("{}: batch value '{}' expects {}, the file has {}", file.string(), value.name,
                                       expected_type(value), type_text(view.dtype, view.shape)));
    }
    Source source;
    source.file_ = std::move(file);
    source.owner_ = std::move(owner);
    source.data_ = static_cast<const std::byte*>(view.data);
    source.bytes_ = view.bytes();
    source.samples_ = view.shape[0];
    source.sample_bytes_ = static_cast<std::size_t>(element_count(sample_shape(value))) * element_size(value.dtype);
    source.distance_ = source.sample_bytes_;
    source.dtype_ = value.dtype;
    source.identity_ = fmt::format("{} {} {}", value.name, dtype_name(value.dtype), source.samples_);
    return source;
  }

  static Result<Source> tokens(const Path& file, const Path& description, const BatchValue& value);

  const Path& file() const { return file_; }
  std::int64_t samples() const { return samples_; }

  void gather(std::span<const std::uint32_t> samples, std::byte* target) const {
    for (const std::uint32_t sample : samples) {
      const std::byte* from = data_ + sample * distance_;
      if (tokens_ && dtype_ == DType::kInt64) {
        widen(*tokens_, from, window_, reinterpret_cast<std::int64_t*>(target));
      } else if (tokens_) {
        widen(*tokens_, from, window_, reinterpret_cast<std::int32_t*>(target));
      } else if (dtype_ == DType::kBool) {
        std::transform(from, from + sample_bytes_, target,
                       [](std::byte b) { return b == std::byte{0} ? b : std::byte{1}; });
      } else if (sample_bytes_ > 0) {
        std::memcpy(target, from, sample_bytes_);
      }
      target += sample_bytes_;
    }
  }

  std::string fingerprint_line() const {
    constexpr std::size_t kPiece = 64 * 1024;
    std::uint32_t checksum = 0;
    if (bytes_ <= 3 * kPiece) {
      checksum = crc32c(data_, bytes_);
    } else {
      checksum = crc32c(data_, kPiece);
      checksum = crc32c(data_ + (bytes_ - kPiece) / 2, kPiece, checksum);
      checksum = crc32c(data_ + bytes_ - kPiece, kPiece, checksum);
    }
    return fmt::format("{} {} {}\n", identity_, bytes_, checksum_text(checksum));
  }

 private:
  Path file_;
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::int64_t samples_ = 0;
  std::size_t sample_bytes_ = 0;  // in the batch
  std::size_t distance_ = 0;      // bytes between the beginnings of two samples in the file
  DType dtype_ = DType::kFloat32;
  std::optional<TokenType> tokens_;  // the file holds tokens, of which a sample takes window_
  std::size_t window_ = 0;
  std::string identity_;
};

Result<DataSet::Source> DataSet::Source::tokens(const Path& file, const Path& description, const BatchValue& value) {
  if (value.shape.size() != 2 || (value.dtype != DType::kInt64 && value.dtype != DType::kInt32) || value.shape[1] < 1) {
    return invalid_input(fmt::format("{}: a token file feeds batch values int64[B, W] or int32[B, W], but '{}' is {}",
                                     file.string(), value.name, type_text(value.dtype, value.shape)));
  }
  const std::string where = description.string();
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(description, 1 << 20));
  const Result<Json> json = parse_json(text);
  if (!json) {
    return invalid_input(where + ": " + json.error().message);
  }
  const auto malformed = [&](std::string_view reason) {
    return invalid_input(fmt::format(
        "{}: {}; expected {{\"dtype\": \"uint8|uint16|uint32|int32|int64\", \"stride\": TOKENS}}", where, reason));
  };
  if (json->object() == nullptr) {
    return malformed("is not a JSON object");
  }
  for (const auto& [key, unused] : *json->object()) {
    if (key != "dtype" && key != "stride") {
      return malformed("unknown key '" + key + "'");
    }
  }
  const Json* dtype = json->find("dtype");
  if (dtype == nullptr || dtype->string() == nullptr) {
    return malformed("has no dtype");
  }
  const auto* type = std::find_if(std::begin(kTokenTypes), std::end(kTokenTypes),
                                  [&](const NamedTokenType& named) { return named.name == *dtype->string(); });
  if (type == std::end(kTokenTypes)) {
    return malformed("unknown dtype '" + *dtype->string() + "'");
  }
  if (value.dtype == DType::kInt32 && !type->fits_int32) {
    return invalid_input(
        fmt::format("{}: {} tokens do not fit batch value '{}', which is int32", where, type->name, value.name));
  }
  const std::int64_t window = value.shape[1];
  std::int64_t stride = std::max<std::int64_t>(window - 1, 1);
  if (const Json* given = json->find("stride")) {
    if (given->integer() == nullptr || *given->integer() < 1) {
      return malformed("stride is not an integer of at least 1");
    }
    stride = *given->integer();
  }
  TESSER_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(file));
  const auto mapping = std::make_shared<const MappedFile>(std::move(mapped));
  const std::span<const std::byte> bytes = mapping->bytes();
  if (bytes.size() % type->bytes != 0) {
    return invalid_input(fmt::format("{}: {} bytes are not a whole number of {} tokens ({} says their dtype)",
                                     file.string(), bytes.size(), type->name, where));
  }
  const auto count = static_cast<std::int64_t>(bytes.size() / type->bytes);
  if (count < window) {
    return invalid_input(fmt::format("{}: has {} tokens, fewer than one window of batch value '{}' ({})", file.string(),
                                     count, value.name, window));
  }
  Source source;
  source.file_ = file;
  source.owner_ = mapping;
  source.data_ = bytes.data();
  source.bytes_ = bytes.size();
  source.samples_ = (count - window) / stride + 1;
  source.sample_bytes_ = static_cast<std::size_t>(window) * element_size(value.dtype);
  // A stride beyond the file is used for no more than sample 0.
  source.distance_ = source.samples_ > 1 ? static_cast<std::size_t>(stride) * type->bytes : 0;
  source.dtype_ = value.dtype;
  source.tokens_ = type->type;
  source.window_ = static_cast<std::size_t>(window);
  source.identity_ = fmt::format("{} {} {}/{}", value.name, type->name, source.samples_, stride);
  return source;
}

namespace {

Result<std::shared_ptr<const SafetensorsFile>> open_safetensors(const Path& file) {
  TESSER_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(file));
  return std::make_shared<const SafetensorsFile>(std::move(opened));
}

std::string keys_of(const SafetensorsFile& file) {
  constexpr std::size_t kShown = 12;
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : file.entries()) {
    names.push_back(entry.name);
  }
  const std::size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  return names.empty()
             ? "it is empty"
             : fmt::format("it has {}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

Result<void> check_batch_values(const std::vector<BatchValue>& values) {
  if (values.empty()) {
    return invalid_input("the program takes no batch values, so there is nothing to feed it with");
  }
  for (const BatchValue& value : values) {
    if (value.shape.empty() || value.shape[0] < 1) {
      return invalid_input(
          fmt::format("batch value '{}' is {}: it has no samples along dimension 0; give it a first dimension for the "
                      "batch in the step file",
                      value.name, type_text(value.dtype, value.shape)));
    }
    if (value.shape[0] != values[0].shape[0]) {
      return invalid_input(fmt::format("batch values '{}' {} and '{}' {} differ in their first dimension, the batch",
                                       values[0].name, shape_text(values[0].shape), value.name,
                                       shape_text(value.shape)));
    }
  }
  return {};
}

}  // namespace

std::vector<BatchValue> batch_values(const graph::Program& program) {
  std::vector<BatchValue> values;
  for (const graph::ValueId id : program.inputs) {
    const graph::Value& value = program.value(id);
    if (value.role == graph::Role::kBatch) {
      values.push_back({value.name, value.dtype, value.shape});
    }
  }
  return values;
}

DataSet::DataSet() = default;
DataSet::DataSet(DataSet&&) noexcept = default;
DataSet& DataSet::operator=(DataSet&&) noexcept = default;
DataSet::~DataSet() = default;

Result<DataSet> DataSet::open(const Path& path, std::vector<BatchValue> values) {
  TESSER_RETURN_IF_ERROR(check_batch_values(values));
  if (!is_there(path)) {
    return not_found(path.string() + ": no such data directory");
  }
  const bool is_directory = std::filesystem::is_directory(path);
  const std::string extension = path.extension().string();
  if (!is_directory && extension != ".safetensors" && (extension != ".npy" || values.size() != 1)) {
    return invalid_input(fmt::format(
        "{}: expected a data directory, a .safetensors file{}", path.string(),
        values.size() == 1 ? " or a .npy file" : fmt::format("; the program takes {} batch values", values.size())));
  }
  DataSet data;
  std::shared_ptr<const SafetensorsFile> together;
  const Path together_path = is_directory ? path / "data.safetensors" : path;
  if (is_directory ? is_there(together_path) : extension == ".safetensors") {
    TESSER_ASSIGN_OR_RETURN(together, open_safetensors(together_path));
  }
  const auto add = [&](Result<Source> source) -> Result<void> {
    TESSER_RETURN_IF_ERROR(source);
    data.sources_.push_back(std::make_unique<Source>(std::move(*source)));
    return {};
  };
  for (const BatchValue& value : values) {
    const Path npy = is_directory ? path / (value.name + ".npy") : path;
    const Path alone = path / (value.name + ".safetensors");
    const Path bin = path / (value.name + ".bin");
    const bool in_npy = is_directory ? is_there(npy) : extension == ".npy";
    const bool in_together = together != nullptr && together->find(value.name) != nullptr;
    const bool in_alone = is_directory && alone != together_path && is_there(alone);
    const bool in_bin = is_directory && is_there(bin);
    std::vector<std::string> found;
    for (const auto& [present, file] :
         {std::pair{in_npy, &npy}, {in_together, &together_path}, {in_alone, &alone}, {in_bin, &bin}}) {
      if (present) {
        found.push_back(file->filename().string());
      }
    }
    if (found.size() > 1) {
      return invalid_input(fmt::format("{}: batch value '{}' is in several files: {}; keep one of them", path.string(),
                                       value.name, fmt::join(found, ", ")));
    }
    if (found.empty() && !is_directory) {
      return invalid_input(fmt::format("{}: {}, which the program takes; {}", path.string(),
                                       together->absence(value.name), keys_of(*together)));
    }
    if (found.empty()) {
      return not_found(
          fmt::format("{0}: no data for batch value '{1}': expected {1}.npy, {1}.safetensors, {1}.bin with {1}.json, "
                      "or a tensor '{1}' in "
                      "data.safetensors; {2}",
                      path.string(), value.name, names_in(path)));
    }
    if (in_npy) {
      TESSER_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(npy));
      const auto mapping = std::make_shared<const MappedFile>(std::move(mapped));
      TESSER_ASSIGN_OR_RETURN(const TensorView view,
                              parse_npy(npy.string(), mapping->bytes().data(), mapping->bytes().size()));
      TESSER_RETURN_IF_ERROR(add(Source::array(npy, value, view, mapping)));
    } else if (in_bin) {
      const Path description = path / (value.name + ".json");
      if (!is_there(description)) {
        return not_found(
            fmt::format("{}: no such file; it says the dtype of the tokens in {}, as in {{\"dtype\": \"uint16\"}}",
                        description.string(), bin.string()));
      }
      TESSER_RETURN_IF_ERROR(add(Source::tokens(bin, description, value)));
    } else {
      std::shared_ptr<const SafetensorsFile> file = together;
      if (in_alone) {
        TESSER_ASSIGN_OR_RETURN(file, open_safetensors(alone));
      }
      const Path& where = in_alone ? alone : together_path;
      const SafetensorsEntry* entry = file->find(value.name);
      if (entry == nullptr) {
        return invalid_input(fmt::format("{}: {}; {}", where.string(), file->absence(value.name), keys_of(*file)));
      }
      TESSER_RETURN_IF_ERROR(add(Source::array(where, value, file->view(*entry), file)));
    }
  }

  const Source& first = *data.sources_[0];
  data.batch_size_ = values[0].shape[0];
  data.samples_ = first.samples();
  std::string identity;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Source& source = *data.sources_[i];
    if (source.samples() != data.samples_) {
      return invalid_input(fmt::format("{}: has {} samples of '{}', but {} has {} of '{}'", source.file().string(),
                                       source.samples(), values[i].name, first.file().string(), data.samples_,
                                       values[0].name));
    }
    identity += source.fingerprint_line();
  }
  if (data.samples_ < data.batch_size_) {
    return invalid_input(fmt::format("{}: has {} samples, too few for one batch of {}", first.file().string(),
                                     data.samples_, data.batch_size_));
  }
  if (data.samples_ > std::int64_t{std::numeric_limits<std::uint32_t>::max()}) {
    return invalid_input(
        fmt::format("{}: has {} samples, more than the supported 2^32 - 1; split it, or use a larger stride for tokens",
                    first.file().string(), data.samples_));
  }
  data.fingerprint_ = checksum_text(crc32c(identity.data(), identity.size()));
  data.values_ = std::move(values);
  return data;
}

void DataSet::gather(std::size_t value, std::span<const std::uint32_t> samples, void* target) const {
  sources_[value]->gather(samples, static_cast<std::byte*>(target));
}

}  // namespace tesser::runtime
