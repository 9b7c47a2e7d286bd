#include "runtime/rectangle.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tesser::runtime {
namespace {

// Distance of neighbours in each dimension of a row-major tensor, in elements.
Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * shape[i];
  }
  return strides;
}

std::int64_t offset_of(const Shape& at, const Rectangle& place, const Shape& strides) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    offset += (at[i] - place.begin[i]) * strides[i];
  }
  return offset;
}

}  // namespace

Rectangle whole_rectangle(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

bool lies_inside(const Rectangle& rectangle, const Shape& shape) {
  if (rectangle.begin.size() != shape.size() || rectangle.size.size() != shape.size()) {
    return false;
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (rectangle.begin[i] < 0 || rectangle.size[i] < 0 || rectangle.begin[i] > shape[i] ||
        rectangle.size[i] > shape[i] - rectangle.begin[i]) {
      return false;
    }
  }
  return true;
}

Rectangle intersection(const Rectangle& a, const Rectangle& b) {
  Rectangle common = a;
  for (std::size_t i = 0; i < a.begin.size(); ++i) {
    common.begin[i] = std::max(a.begin[i], b.begin[i]);
    const std::int64_t end = std::min(a.begin[i] + a.size[i], b.begin[i] + b.size[i]);
    common.size[i] = std::max<std::int64_t>(end - common.begin[i], 0);
  }
  return common;
}

std::string rectangle_text(const Rectangle& rectangle) {
  std::string text;
  for (std::size_t i = 0; i < rectangle.begin.size(); ++i) {
    text += (i > 0 ? "," : "") + std::to_string(rectangle.begin[i]) + ":" +
            std::to_string(rectangle.begin[i] + rectangle.size[i]);
  }
  return text;
}

void copy_rectangle(std::size_t element_bytes, const Rectangle& region, const std::byte* source,
                    const Rectangle& source_place, std::byte* target, const Rectangle& target_place) {
  if (element_count(region.size) == 0) {
    return;
  }
  const Shape source_strides = strides_of(source_place.size);
  const Shape target_strides = strides_of(target_place.size);
  // Dimensions from `inner` on are contiguous on both sides: one run.
  std::size_t inner = region.size.size();
  std::int64_t run = 1;
  while (inner > 0) {
    run *= region.size[inner - 1];
    --inner;
    if (region.size[inner] != source_place.size[inner] || region.size[inner] != target_place.size[inner]) {
      break;
    }
  }
  Shape at = region.begin;
  while (true) {
    std::memcpy(target + static_cast<std::size_t>(offset_of(at, target_place, target_strides)) * element_bytes,
                source + static_cast<std::size_t>(offset_of(at, source_place, source_strides)) * element_bytes,
                static_cast<std::size_t>(run) * element_bytes);
    std::size_t dimension = inner;
    while (dimension > 0 && ++at[dimension - 1] == region.begin[dimension - 1] + region.size[dimension - 1]) {
      at[dimension - 1] = region.begin[dimension - 1];
      --dimension;
    }
    if (dimension == 0) {
      return;
    }
  }
}

}  // namespace tesser::runtime
