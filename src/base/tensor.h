// Data types, shapes, and views of tensor memory owned by somebody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tesser {

enum class DType : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
};

using Shape = std::vector<std::int64_t>;

std::size_t element_size(DType dtype);                        // bytes
std::string_view dtype_name(DType dtype);                     // "float32"
std::optional<DType> dtype_from_name(std::string_view name);  // nothing for an unknown name
bool is_floating(DType dtype);

// Product of the dimensions; 1 for a scalar. The shape must not overflow (graph::verify refuses such shapes).
std::int64_t element_count(const Shape& shape);

// Bytes of such a tensor; nothing when a dimension is negative or the product of the dimensions other than 0 and the
// element size does not fit 63 bits.
std::optional<std::int64_t> checked_bytes(DType dtype, const Shape& shape);

std::string shape_text(const Shape& shape);              // "[8, 3]"
std::string type_text(DType dtype, const Shape& shape);  // "float32[8, 3]"

// Row-major, contiguous memory that the view does not own.
struct TensorView {
  DType dtype = DType::kFloat32;
  Shape shape;
  const void* data = nullptr;

  std::size_t bytes() const { return static_cast<std::size_t>(element_count(shape)) * element_size(dtype); }
};

struct MutableTensorView {
  DType dtype = DType::kFloat32;
  Shape shape;
  void* data = nullptr;

  std::size_t bytes() const { return static_cast<std::size_t>(element_count(shape)) * element_size(dtype); }
};

}  // namespace tesser
