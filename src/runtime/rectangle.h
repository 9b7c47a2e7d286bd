// Rectangles of row-major tensors: cut out of a whole one, put back into it.
#pragma once

#include <cstddef>
#include <string>

#include "base/tensor.h"

namespace tesser::runtime {

// A rectangle of a tensor: where it begins, and its size by dimension.
struct Rectangle {
  Shape begin;
  Shape size;
  bool operator==(const Rectangle&) const = default;
};

// The rectangle that a tensor of this shape is of itself.
Rectangle whole_rectangle(const Shape& shape);
bool lies_inside(const Rectangle& rectangle, const Shape& shape);
// What two rectangles of one tensor have in common; sizes are 0 where that is nothing.
Rectangle intersection(const Rectangle& a, const Rectangle& b);
std::string rectangle_text(const Rectangle& rectangle);  // "0:4,8:16"

// Copies `region` from one memory to another. Each holds a rectangle of the same tensor, row-major and contiguous;
// `region` lies in both. The memories do not overlap.
void copy_rectangle(std::size_t element_bytes, const Rectangle& region, const std::byte* source,
                    const Rectangle& source_place, std::byte* target, const Rectangle& target_place);

}  // namespace tesser::runtime
