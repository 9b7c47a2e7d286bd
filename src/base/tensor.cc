#include "base/tensor.h"

#include <array>
#include <string>

#include "base/check.h"

namespace tesser {
namespace {

struct DTypeTraits {
  std::string_view name;
  std::size_t size;
  bool floating;
};

// In the order of DType.
constexpr std::array<DTypeTraits, 10> kTraits{{
    {"float32", 4, true},
    {"float64", 8, true},
    {"float16", 2, true},
    {"bfloat16", 2, true},
    {"int64", 8, false},
    {"int32", 4, false},
    {"int16", 2, false},
    {"int8", 1, false},
    {"uint8", 1, false},
    {"bool", 1, false},
}};

const DTypeTraits& traits(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  TESSER_CHECK(index < kTraits.size(), "data type number " + std::to_string(index));
  return kTraits[index];
}

}  // namespace

std::size_t element_size(DType dtype) { return traits(dtype).size; }

std::string_view dtype_name(DType dtype) { return traits(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t index = 0; index < kTraits.size(); ++index) {
    if (kTraits[index].name == name) {
      return static_cast<DType>(index);
    }
  }
  return std::nullopt;
}

bool is_floating(DType dtype) { return traits(dtype).floating; }

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) {
    count *= dimension;
  }
  return count;
}

std::optional<std::int64_t> checked_bytes(DType dtype, const Shape& shape) {
  auto bytes = static_cast<std::int64_t>(element_size(dtype));
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) {
      return std::nullopt;
    }
    if (dimension == 0) {
      empty = true;  // the other dimensions must not overflow either: strides are products of them
    } else if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t index = 0; index < shape.size(); ++index) {
    text += (index == 0 ? "" : ", ") + std::to_string(shape[index]);
  }
  return text + "]";
}

std::string type_text(DType dtype, const Shape& shape) { return std::string(dtype_name(dtype)) + shape_text(shape); }

}  // namespace tesser
