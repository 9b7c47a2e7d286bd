#include "runtime/element.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tesser::runtime {
namespace {

template <typename T>
T load(const void* data, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

double from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int fraction = bits & 0x3FF;
  double magnitude = 0;
  if (exponent == 0x1F) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(fraction + 0x400, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

double element_as_double(DType dtype, const void* data, std::size_t index) {
  switch (dtype) {
    case DType::kFloat32:
      return load<float>(data, index);
    case DType::kFloat64:
      return load<double>(data, index);
    case DType::kFloat16:
      return from_half(load<std::uint16_t>(data, index));
    case DType::kBFloat16:
      return std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(data, index)} << 16);
    case DType::kInt64:
      return static_cast<double>(load<std::int64_t>(data, index));
    case DType::kInt32:
      return load<std::int32_t>(data, index);
    case DType::kInt16:
      return load<std::int16_t>(data, index);
    case DType::kInt8:
      return load<std::int8_t>(data, index);
    case DType::kUInt8:
      return load<std::uint8_t>(data, index);
    case DType::kBool:
      return load<std::uint8_t>(data, index) != 0 ? 1 : 0;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tesser::runtime
