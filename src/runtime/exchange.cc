#include "runtime/exchange.h"

#include "base/check.h"

namespace tesser::runtime {
Runs runs_of(DType dtype, std::span<const std::int64_t> strides, const Shape& begin, const Shape& size,
             const layout::Order& order) {
  TESSER_CHECK(strides.size() == size.size() && begin.size() == size.size() && layout::is_order(order, size.size()),
               shape_text(begin) + " + " + shape_text(size));
  const std::uint64_t element = element_size(dtype);
  Runs runs;
  runs.run_bytes = element;
  std::vector<Runs::Axis> inner_first;
  for (std::size_t inner = 0; inner < size.size(); ++inner) {
    const std::size_t place = size.size() - 1 - inner;
    const std::size_t dimension = order.empty() ? place : static_cast<std::size_t>(order[place]);
    const auto pitch = static_cast<std::uint64_t>(strides[dimension]) * element;
    const auto count = static_cast<std::uint64_t>(size[dimension]);
    runs.offset += static_cast<std::uint64_t>(begin[dimension]) * pitch;
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
