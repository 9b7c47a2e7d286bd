#include "platform/learner/event_file.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/checksum.h"

namespace tesser::platform {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers of event files are little-endian");

constexpr std::size_t kHeaderBytes = 12;  // length and its checksum
constexpr std::size_t kFooterBytes = 4;
constexpr std::uint64_t kMostRecordBytes = std::uint64_t{64} << 20;

// TensorFlow stores checksums so that data which holds checksums itself does not weaken them.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t checksum = crc32c(bytes.data(), bytes.size());
  return ((checksum >> 15) | (checksum << 17)) + 0xA282EAD8U;
}

template <typename T>
T load(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

template <typename T>
void append_bytes(std::string& to, T value) {
  std::array<char, sizeof value> bytes;
  std::memcpy(bytes.data(), &value, sizeof value);
  to.append(bytes.data(), bytes.size());
}

enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  std::uint64_t number = 0;
  std::uint8_t type = kVarint;
  std::uint64_t integer = 0;  // of the first two types and kFixed32: the bits
  std::string_view bytes;
};

// Goes through the fields of a message.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  // False at the end, and where the bytes are no message.
  bool next(Field& field) {
    std::uint64_t key = 0;
    if (rest_.empty() || !varint(key)) {
      return false;
    }
    field.number = key >> 3;
    field.type = static_cast<std::uint8_t>(key & 7U);
    switch (field.type) {
      case kVarint:
        return varint(field.integer);
      case kFixed64:
        return fixed<std::uint64_t>(field.integer);
      case kFixed32:
        return fixed<std::uint32_t>(field.integer);
      case kBytes: {
        std::uint64_t count = 0;
        if (!varint(count) || count > rest_.size()) {
          return fail();
        }
        field.bytes = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return true;
      }
      default:  // groups are not used
        return fail();
    }
  }
  bool varint(std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) {
        return true;
      }
    }
    return fail();
  }
  bool is_broken() const { return is_broken_; }
  bool is_at_end() const { return rest_.empty(); }

 private:
  template <typename T>
  bool fixed(std::uint64_t& value) {
    if (rest_.size() < sizeof(T)) {
      return fail();
    }
    value = load<T>(rest_);
    rest_.remove_prefix(sizeof(T));
    return true;
  }
  bool fail() {
    is_broken_ = true;
    return false;
  }

  std::string_view rest_;
  bool is_broken_ = false;
};

double float_of(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

// TensorProto: dtype 1, tensor_shape 2, tensor_content 4, float_val 5, double_val 6, int_val 7, int64_val 10.
std::optional<double> tensor_scalar(std::string_view bytes) {
  enum { kFloat = 1, kDouble = 2, kInt32 = 3, kInt64 = 9 };
  std::uint64_t dtype = 0;
  std::string_view content;
  std::vector<double> values;
  MessageReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    const bool is_packed = field.type == kBytes;
    switch (field.number) {
      case 1:
        dtype = field.integer;
        break;
      case 4:
        content = field.bytes;
        break;
      case 5:
        if (is_packed && field.bytes.size() == 4) {
          values.push_back(load<float>(field.bytes));
        } else if (field.type == kFixed32) {
          values.push_back(float_of(field.integer));
        } else {
          return std::nullopt;
        }
        break;
      case 6:
        if (is_packed && field.bytes.size() == 8) {
          values.push_back(load<double>(field.bytes));
        } else if (field.type == kFixed64) {
          values.push_back(std::bit_cast<double>(field.integer));
        } else {
          return std::nullopt;
        }
        break;
      case 7:
      case 10: {
        std::uint64_t integer = field.integer;
        if (is_packed) {
          MessageReader packed(field.bytes);
          if (!packed.varint(integer) || !packed.is_at_end()) {
            return std::nullopt;
          }
        }
        values.push_back(static_cast<double>(static_cast<std::int64_t>(integer)));
        break;
      }
      default:
        break;
    }
  }
  if (values.size() == 1 && (dtype == kFloat || dtype == kDouble || dtype == kInt32 || dtype == kInt64)) {
    return values[0];
  }
  if (values.empty()) {
    if (dtype == kFloat && content.size() == 4) {
      return load<float>(content);
    }
    if (dtype == kDouble && content.size() == 8) {
      return load<double>(content);
    }
    if (dtype == kInt32 && content.size() == 4) {
      return load<std::int32_t>(content);
    }
    if (dtype == kInt64 && content.size() == 8) {
      return static_cast<double>(load<std::int64_t>(content));
    }
  }
  return std::nullopt;
}

// Summary.Value: tag 1, simple_value 2, tensor 8.
void take_value(std::string_view bytes, ScalarEvent& event) {
  std::string_view tag;
  std::optional<double> value;
  MessageReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    if (field.number == 1 && field.type == kBytes) {
      tag = field.bytes;
    } else if (field.number == 2 && field.type == kFixed32) {
      value = float_of(field.integer);
    } else if (field.number == 8 && field.type == kBytes) {
      value = tensor_scalar(field.bytes);
    }
  }
  if (value && !tag.empty() && !reader.is_broken()) {
    event.scalars.emplace_back(tag, *value);
  }
}

void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    to += static_cast<char>(value | 0x80U);
  }
  to += static_cast<char>(value);
}
void append_key(std::string& to, std::uint64_t number, WireType type) { append_varint(to, number << 3 | type); }
void append_field(std::string& to, std::uint64_t number, std::string_view bytes) {
  append_key(to, number, kBytes);
  append_varint(to, bytes.size());
  to += bytes;
}

}  // namespace

TfRecord next_tf_record(std::string_view bytes) {
  TfRecord record;
  if (bytes.size() < kHeaderBytes) {
    return record;
  }
  const auto length = load<std::uint64_t>(bytes);
  if (load<std::uint32_t>(bytes.substr(8)) != masked_crc(bytes.substr(0, 8)) || length > kMostRecordBytes) {
    record.outcome = TfRecord::Outcome::kDamaged;
    return record;
  }
  if (bytes.size() < kHeaderBytes + length + kFooterBytes) {
    return record;
  }
  const std::string_view data = bytes.substr(kHeaderBytes, length);
  if (load<std::uint32_t>(bytes.substr(kHeaderBytes + length)) != masked_crc(data)) {
    record.outcome = TfRecord::Outcome::kDamaged;
    return record;
  }
  return {TfRecord::Outcome::kWhole, data, kHeaderBytes + length + kFooterBytes};
}

void append_tf_record(std::string& to, std::string_view data) {
  std::string length;
  append_bytes(length, std::uint64_t{data.size()});
  to += length;
  append_bytes(to, masked_crc(length));
  to += data;
  append_bytes(to, masked_crc(data));
}

// Event: wall_time 1, step 2, file_version 3, summary 5. Summary: value 1.
std::optional<ScalarEvent> parse_event(std::string_view bytes) {
  ScalarEvent event;
  MessageReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    if (field.number == 1 && field.type == kFixed64) {
      event.wall_time = std::bit_cast<double>(field.integer);
    } else if (field.number == 2 && field.type == kVarint) {
      event.step = static_cast<std::int64_t>(field.integer);
    } else if (field.number == 5 && field.type == kBytes) {
      MessageReader summary(field.bytes);
      Field value;
      while (summary.next(value)) {
        if (value.number == 1 && value.type == kBytes) {
          take_value(value.bytes, event);
        }
      }
      if (summary.is_broken()) {
        return std::nullopt;
      }
    }
  }
  if (reader.is_broken()) {
    return std::nullopt;
  }
  return event;
}

std::string event_bytes(const ScalarEvent& event) {
  std::string summary;
  for (const auto& [tag, value] : event.scalars) {
    std::string entry;
    append_field(entry, 1, tag);
    append_key(entry, 2, kFixed32);
    append_bytes(entry, static_cast<float>(value));
    append_field(summary, 1, entry);
  }
  std::string bytes;
  append_key(bytes, 1, kFixed64);
  append_bytes(bytes, event.wall_time);
  append_key(bytes, 2, kVarint);
  append_varint(bytes, static_cast<std::uint64_t>(event.step));
  append_field(bytes, 5, summary);
  return bytes;
}

std::string version_event_bytes(double wall_time) {
  std::string bytes;
  append_key(bytes, 1, kFixed64);
  append_bytes(bytes, wall_time);
  append_field(bytes, 3, "brain.Event:2");
  return bytes;
}

}  // namespace tesser::platform
