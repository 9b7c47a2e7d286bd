#include "runtime/exchange.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tesser::runtime {
namespace {

// Dimensions from the outermost to the innermost in the order of a transfer.
std::vector<std::size_t> transfer_order(std::size_t rank, bool permuted) {
  if (permuted && rank == 4) {
    return {0, 2, 3, 1};
  }
  if (permuted && rank == 2) {
    return {1, 0};
  }
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

}  // namespace

std::vector<std::int64_t> dense_strides(const Shape& shape, bool permuted) {
  std::vector<std::int64_t> strides(shape.size());
  const std::vector<std::size_t> order = transfer_order(shape.size(), permuted);
  std::int64_t stride = 1;
  for (auto dimension = order.rbegin(); dimension != order.rend(); ++dimension) {
    strides[*dimension] = stride;
    stride *= std::max<std::int64_t>(shape[*dimension], 1);
  }
  return strides;
}

Runs runs_of(DType dtype, std::span<const std::int64_t> strides, const Shape& begin, const Shape& size, bool permuted) {
  TESSER_CHECK(strides.size() == size.size() && begin.size() == size.size(),
               shape_text(begin) + " + " + shape_text(size));
  const std::uint64_t element = element_size(dtype);
  Runs runs;
  runs.run_bytes = element;
  const std::vector<std::size_t> order = transfer_order(size.size(), permuted);
  std::vector<Runs::Axis> inner_first;
  for (auto dimension = order.rbegin(); dimension != order.rend(); ++dimension) {
    const auto pitch = static_cast<std::uint64_t>(strides[*dimension]) * element;
    const auto count = static_cast<std::uint64_t>(size[*dimension]);
    runs.offset += static_cast<std::uint64_t>(begin[*dimension]) * pitch;
    if (count == 1) {
      continue;
    }
    if (inner_first.empty() && pitch == runs.run_bytes) {
      runs.run_bytes *= count;
    } else if (!inner_first.empty() && pitch == inner_first.back().count * inner_first.back().pitch) {
      inner_first.back().count *= count;
    } else {
      inner_first.push_back({count, pitch});
    }
  }
  runs.axes.assign(inner_first.rbegin(), inner_first.rend());
  return runs;
}

}  // namespace tesser::runtime
