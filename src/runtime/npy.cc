#include "runtime/npy.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tesser::runtime {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct NamedDType {
  std::string_view descriptor;
  DType dtype;
};
constexpr std::array<NamedDType, 12> kDTypes{{
    {"<f4", DType::kFloat32},
    {"<f8", DType::kFloat64},
    {"<f2", DType::kFloat16},
    {"<i8", DType::kInt64},
    {"<i4", DType::kInt32},
    {"<i2", DType::kInt16},
    {"|i1", DType::kInt8},
    {"<i1", DType::kInt8},
    {"|u1", DType::kUInt8},
    {"<u1", DType::kUInt8},
    {"|b1", DType::kBool},
    {"<b1", DType::kBool},
}};

struct Header {
  std::optional<std::string> descriptor;
  std::optional<bool> fortran_order;
  std::optional<Shape> shape;
};

// The header is a Python dictionary literal with three known keys; this reads just that much of Python. Each function
// returns false when the text is something else.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  bool parse(Header& header) {
    if (!accept('{')) {
      return false;
    }
    while (!accept('}')) {
      std::string key;
      if (!string(key) || !accept(':') || !value(key, header)) {
        return false;
      }
      if (!accept(',')) {
        if (!accept('}')) {
          return false;
        }
        break;
      }
    }
    skip_space();
    return position_ == text_.size() && header.descriptor && header.fortran_order && header.shape;
  }

 private:
  bool value(const std::string& key, Header& header) {
    if (key == "descr" && !header.descriptor) {
      return string(header.descriptor.emplace());
    }
    if (key == "fortran_order" && !header.fortran_order) {
      return boolean(header.fortran_order.emplace());
    }
    if (key == "shape" && !header.shape) {
      return shape(header.shape.emplace());
    }
    return false;
  }

  void skip_space() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\t')) {
      ++position_;
    }
  }

  bool accept(char expected) {
    skip_space();
    if (position_ < text_.size() && text_[position_] == expected) {
      ++position_;
      return true;
    }
    return false;
  }

  bool string(std::string& value) {
    skip_space();
    if (position_ >= text_.size() || (text_[position_] != '\'' && text_[position_] != '"')) {
      return false;
    }
    const char quote = text_[position_++];
    const std::size_t end = text_.find(quote, position_);
    if (end == std::string_view::npos) {
      return false;
    }
    value = text_.substr(position_, end - position_);
    position_ = end + 1;
    return value.find('\\') == std::string::npos;
  }

  bool boolean(bool& value) {
    skip_space();
    for (const auto& [word, meaning] : {std::pair{std::string_view("True"), true}, {"False", false}}) {
      if (text_.substr(position_, word.size()) == word) {
        position_ += word.size();
        value = meaning;
        return true;
      }
    }
    return false;
  }

  bool shape(Shape& value) {
    if (!accept('(')) {
      return false;
    }
    while (!accept(')')) {
      std::int64_t dimension = 0;
      if (value.size() >= 64 || !integer(dimension)) {
        return false;
      }
      value.push_back(dimension);
      if (!accept(',')) {
        return value.size() != 1 && accept(')');  // (3) is an integer in Python, not a tuple
      }
    }
    return true;
  }

  bool integer(std::int64_t& value) {
    skip_space();
    const std::size_t begin = position_;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, text_[position_] - '0', &value)) {
        return false;
      }
      ++position_;
    }
    return position_ > begin;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

// A piece of the header for an error message: printable and short.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, 100)) {
    result += c >= ' ' && c <= '~' ? c : '?';
  }
  return result + (text.size() > 100 ? "...'" : "'");
}

}  // namespace

Result<TensorView> parse_npy(const std::string& file, const std::byte* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  if (!text.starts_with(kMagic) || size < 10) {
    return invalid_input(
        fmt::format("{}: not a .npy file: it does not begin with numpy's signature; write it with numpy.save", file));
  }
  const int major = std::to_integer<int>(bytes[6]);
  if (major < 1 || major > 3) {
    return invalid_input(fmt::format("{}: .npy format {}.{} is unknown; expected 1.0, 2.0 or 3.0", file, major,
                                     std::to_integer<int>(bytes[7])));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  std::size_t header_length = 0;
  if (size < 8 + length_bytes) {
    return invalid_input(fmt::format("{}: the .npy header is cut off", file));
  }
  for (std::size_t i = 0; i < length_bytes; ++i) {
    header_length |= std::to_integer<std::size_t>(bytes[8 + i]) << (8 * i);
  }
  const std::size_t header_begin = 8 + length_bytes;
  if (header_length > size - header_begin) {
    return invalid_input(fmt::format("{}: the .npy header is cut off: it should have {} bytes, the file has {}", file,
                                     header_length, size - header_begin));
  }
  const std::string_view header_text = text.substr(header_begin, header_length);
  Header header;
  if (!HeaderParser(header_text).parse(header)) {
    return invalid_input(
        fmt::format("{}: malformed .npy header {}; expected descr, fortran_order and shape, as numpy.save writes them "
                    "for a plain array",
                    file, quoted(header_text)));
  }
  const auto* known = std::find_if(kDTypes.begin(), kDTypes.end(),
                                   [&](const NamedDType& named) { return named.descriptor == *header.descriptor; });
  if (known == kDTypes.end()) {
    return invalid_input(fmt::format(
        "{}: numpy dtype {} is not supported; expected little-endian float16/32/64, int8/16/32/64, uint8 or bool", file,
        quoted(*header.descriptor)));
  }
  if (*header.fortran_order && header.shape->size() > 1) {
    return invalid_input(
        fmt::format("{}: the array is in Fortran order; save numpy.ascontiguousarray(array) instead", file));
  }
  std::size_t expected = element_size(known->dtype);
  for (const std::int64_t dimension : *header.shape) {
    if (__builtin_mul_overflow(expected, static_cast<std::size_t>(dimension), &expected)) {
      return invalid_input(
          fmt::format("{}: malformed .npy header: the shape ({}) overflows", file, fmt::join(*header.shape, ", ")));
    }
  }
  const std::size_t found = size - header_begin - header_length;
  if (found != expected) {
    return invalid_input(
        fmt::format("{}: {} .npy file: the header promises {} bytes of data for shape ({}), the file has {}", file,
                    found < expected ? "truncated" : "over-long", expected, fmt::join(*header.shape, ", "), found));
  }
  return TensorView{known->dtype, std::move(*header.shape), bytes + header_begin + header_length};
}

}  // namespace tesser::runtime
