// How the elements of a tensor lie in memory: elements from one index to the next, by dimension.
//
// A dimension of size one has no influence on where elements lie, nor has any dimension of an empty tensor: their
// strides do not count when two layouts are compared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/tensor.h"

namespace tesser::layout {

using Strides = std::vector<std::int64_t>;
// Dimensions from the outermost in memory to the innermost.
using Order = std::vector<std::int64_t>;

// A damaged program can make products overflow; they saturate and then fit nothing.
std::int64_t product(std::int64_t a, std::int64_t b);

Strides row_major(const Shape& shape);
// Channels, the second dimension, innermost: of shapes with three to five dimensions; others row-major.
Strides channels_last(const Shape& shape);
// A dense tensor whose dimensions lie in this order; an empty one means row-major.
Strides dense_strides(const Shape& shape, const Order& order);
// Whether it names each of `rank` dimensions once, or is empty, which means row-major.
bool is_order(const Order& order, std::size_t rank);
// The order of the dimensions; of equal strides the first dimension is the outer one.
Order order_of(const Shape& shape, const Strides& strides);
bool is_row_major(const Order& order);

bool same(const Shape& shape, const Strides& left, const Strides& right);
bool is_row_major(const Shape& shape, const Strides& strides);
// Whether PyTorch's kernels for images take the strides of four or five dimensions for channels-last. Here strides of
// dimensions of size one do count: they decide where both layouts are the same memory.
bool suggests_channels_last(const Shape& shape, const Strides& strides);
// Each element of a stretch of memory once: no holes, no dimension that repeats.
bool is_dense(const Shape& shape, const Strides& strides);

// The layout that PyTorch's empty_like gives: of a dense tensor its own, of another one dense in the same order.
Strides preserved(const Shape& shape, const Strides& strides);

// An operand of an elementwise operator.
struct Operand {
  const Shape* shape = nullptr;
  const Strides* strides = nullptr;
};
// The layout that PyTorch's TensorIterator gives the result of an elementwise operator: that of its operands where they
// agree; otherwise the first operand that tells two dimensions apart decides about them.
Strides iterated(const Shape& shape, std::span<const Operand> operands);

}  // namespace tesser::layout
