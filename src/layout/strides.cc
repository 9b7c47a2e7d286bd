#include "layout/strides.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tesser::layout {
namespace {

bool is_empty(const Shape& shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

// Sorts dimensions from the innermost outwards by insertion. compare(a, b) is negative where `a` lies inside `b`,
// positive where outside, zero where it cannot tell: then the search for a place goes on behind `a`.
template <typename Compare>
Order sorted_dimensions(std::size_t rank, const Compare& compare) {
  Order inner_first(rank);
  std::iota(inner_first.rbegin(), inner_first.rend(), std::int64_t{0});
  for (std::size_t next = 1; next < rank; ++next) {
    std::size_t place = next;
    for (std::size_t before = next; before-- > 0;) {
      const int found =
          compare(static_cast<std::size_t>(inner_first[before]), static_cast<std::size_t>(inner_first[place]));
      if (found > 0) {
        std::swap(inner_first[before], inner_first[place]);
        place = before;
      } else if (found < 0) {
        break;
      }
    }
  }
  return {inner_first.rbegin(), inner_first.rend()};
}

int compare_strides(const Shape& shape, const Strides& strides, std::size_t a, std::size_t b) {
  if (strides[a] == 0 || strides[b] == 0) {
    return 0;
  }
  if (strides[a] != strides[b]) {
    return strides[a] < strides[b] ? -1 : 1;
  }
  return shape[a] > shape[b] ? 1 : 0;
}

}  // namespace

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
}

Strides row_major(const Shape& shape) {
  Strides strides(shape.size());
  std::int64_t next = 1;
  for (std::size_t dimension = shape.size(); dimension-- > 0;) {
    strides[dimension] = next;
    next = product(next, std::max<std::int64_t>(shape[dimension], 1));
  }
  return strides;
}

Strides channels_last(const Shape& shape) {
  if (shape.size() == 3) {
    return dense_strides(shape, {0, 2, 1});
  }
  if (shape.size() == 4) {
    return dense_strides(shape, {0, 2, 3, 1});
  }
  return shape.size() == 5 ? dense_strides(shape, {0, 2, 3, 4, 1}) : row_major(shape);
}

Strides dense_strides(const Shape& shape, const Order& order) {
  if (order.empty()) {
    return row_major(shape);
  }
  Strides strides(shape.size());
  std::int64_t next = 1;
  for (auto dimension = order.rbegin(); dimension != order.rend(); ++dimension) {
    const auto at = static_cast<std::size_t>(*dimension);
    strides[at] = next;
    next = product(next, std::max<std::int64_t>(shape[at], 1));
  }
  return strides;
}

Order order_of(const Shape& shape, const Strides& strides) {
  return sorted_dimensions(shape.size(),
                           [&](std::size_t a, std::size_t b) { return compare_strides(shape, strides, a, b); });
}

bool is_order(const Order& order, std::size_t rank) {
  Order dimensions(rank);
  std::iota(dimensions.begin(), dimensions.end(), std::int64_t{0});
  return order.empty() || std::is_permutation(order.begin(), order.end(), dimensions.begin(), dimensions.end());
}

bool is_row_major(const Order& order) { return std::is_sorted(order.begin(), order.end()); }

bool same(const Shape& shape, const Strides& left, const Strides& right) {
  if (left == right || is_empty(shape)) {
    return true;
  }
  for (std::size_t dimension = 0; dimension < shape.size(); ++dimension) {
    if (shape[dimension] != 1 && left[dimension] != right[dimension]) {
      return false;
    }
  }
  return true;
}

bool is_row_major(const Shape& shape, const Strides& strides) { return same(shape, strides, row_major(shape)); }

bool suggests_channels_last(const Shape& shape, const Strides& strides) {
  if (shape.size() != 4 && shape.size() != 5) {
    return false;
  }
  // From the innermost dimension outwards: channels, then the last to the third, then the batch.
  std::int64_t least = 0;
  for (std::size_t step = 0; step < shape.size(); ++step) {
    const std::size_t dimension = step == 0 ? 1 : step + 1 == shape.size() ? 0 : shape.size() - step;
    const bool is_batch = dimension == 0;
    if (shape[dimension] == 0 || strides[dimension] < least || (is_batch && least == strides[1])) {
      return false;
    }
    if (step == 0 && strides[1] == 0) {
      return false;
    }
    least = product(strides[dimension], shape[dimension]);
  }
  return true;
}

bool is_dense(const Shape& shape, const Strides& strides) {
  return same(shape, strides, dense_strides(shape, order_of(shape, strides)));
}

Strides preserved(const Shape& shape, const Strides& strides) { return dense_strides(shape, order_of(shape, strides)); }

Strides iterated(const Shape& shape, std::span<const Operand> operands) {
  // An operand of fewer dimensions, or with a dimension of one, repeats along the others.
  std::vector<Strides> repeated;
  for (const Operand& operand : operands) {
    Strides strides(shape.size(), 0);
    const std::size_t added = shape.size() - std::min(operand.shape->size(), shape.size());
    for (std::size_t dimension = added; dimension < shape.size(); ++dimension) {
      const std::size_t own = dimension - added;
      const bool repeats = (*operand.shape)[own] == 1 && shape[dimension] != 1;
      strides[dimension] = repeats ? 0 : (*operand.strides)[own];
    }
    repeated.push_back(std::move(strides));
  }
  const auto all_lie = [&](const auto& is_so) { return std::all_of(repeated.begin(), repeated.end(), is_so); };
  for (const Strides& layout : {row_major(shape), channels_last(shape)}) {
    if (all_lie([&](const Strides& strides) { return same(shape, strides, layout); })) {
      return layout;
    }
  }
  if (!repeated.empty() && is_dense(shape, repeated.front()) &&
      all_lie([&](const Strides& strides) { return strides == repeated.front(); })) {
    return repeated.front();
  }
  return dense_strides(shape, sorted_dimensions(shape.size(), [&](std::size_t a, std::size_t b) {
                         for (const Strides& strides : repeated) {
                           if (const int found = compare_strides(shape, strides, a, b); found != 0) {
                             return found;
                           }
                         }
                         return 0;
                       }));
}

}  // namespace tesser::layout
