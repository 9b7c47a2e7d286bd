#include "transport/strided.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace tesser::transport {
namespace {

constexpr std::uint64_t kLimit = std::uint64_t{1} << 62;
constexpr std::size_t kMostAxes = 8;

}  // namespace

std::uint64_t Strided::runs() const {
  std::uint64_t runs = 1;
  for (const Axis& axis : axes) {
    runs *= axis.count;
  }
  return runs;
}

std::uint64_t Strided::bytes() const { return runs() * run_bytes; }

std::optional<std::uint64_t> Strided::checked_end() const {
  if (axes.size() > kMostAxes || offset >= kLimit || run_bytes >= kLimit) {
    return std::nullopt;
  }
  std::uint64_t end = offset + run_bytes;
  std::uint64_t total = run_bytes;
  for (const Axis& axis : axes) {
    std::uint64_t span = 0;
    if (axis.count == 0 || __builtin_mul_overflow(axis.count - 1, axis.pitch, &span) ||
        __builtin_add_overflow(end, span, &end) || __builtin_mul_overflow(total, axis.count, &total)) {
      return std::nullopt;
    }
    if (end >= kLimit || total >= kLimit) {
      return std::nullopt;
    }
  }
  return end;
}

Strided rectangle(std::uint64_t offset, DType dtype, const Shape& tensor, const Shape& begin, const Shape& extent) {
  TESSER_CHECK(begin.size() == tensor.size() && extent.size() == tensor.size(),
               shape_text(tensor) + " " + shape_text(begin) + " " + shape_text(extent));
  for (std::size_t axis = 0; axis < tensor.size(); ++axis) {
    TESSER_CHECK(begin[axis] >= 0 && extent[axis] >= 0 && begin[axis] + extent[axis] <= tensor[axis],
                 shape_text(begin) + " + " + shape_text(extent) + " in " + shape_text(tensor));
  }
  const std::size_t size = element_size(dtype);
  Strided layout = Strided::contiguous(offset, size);
  std::uint64_t pitch = size;
  bool whole = true;  // all inner axes are taken whole, so runs of this axis touch
  std::vector<Strided::Axis> inner_first;
  for (std::size_t axis = tensor.size(); axis-- > 0;) {
    const auto count = static_cast<std::uint64_t>(extent[axis]);
    if (count == 0) {
      return Strided::contiguous(offset, 0);
    }
    layout.offset += static_cast<std::uint64_t>(begin[axis]) * pitch;
    if (whole) {
      layout.run_bytes *= count;
    } else if (count > 1) {
      inner_first.push_back({count, pitch});
    }
    whole = whole && extent[axis] == tensor[axis];
    pitch *= static_cast<std::uint64_t>(tensor[axis]);
  }
  layout.axes.assign(inner_first.rbegin(), inner_first.rend());
  return layout;
}

RunCursor::RunCursor(Strided layout)
    : layout_(std::move(layout)), index_(layout_.axes.size(), 0), run_begin_(layout_.offset), left_(layout_.bytes()) {}

void RunCursor::advance(std::uint64_t bytes) {
  left_ -= bytes;
  inside_ += bytes;
  if (inside_ < layout_.run_bytes) {
    return;
  }
  inside_ = 0;
  for (std::size_t axis = index_.size(); axis-- > 0;) {
    const Strided::Axis& here = layout_.axes[axis];
    if (++index_[axis] < here.count) {
      run_begin_ += here.pitch;
      return;
    }
    run_begin_ -= here.pitch * (here.count - 1);
    index_[axis] = 0;
  }
  // After the last run of a layout without axes, or of all: at the begin again, with nothing left.
}

RunPairs::RunPairs(const Strided& first, const Strided& second) : first_(first), second_(second) {
  TESSER_CHECK(first_.left() == second_.left(),
               std::to_string(first_.left()) + " and " + std::to_string(second_.left()));
}

std::optional<RunPairs::Pair> RunPairs::next() {
  if (first_.left() == 0) {
    return std::nullopt;
  }
  const Pair pair{first_.offset(), second_.offset(), std::min(first_.left_in_run(), second_.left_in_run())};
  first_.advance(pair.bytes);
  second_.advance(pair.bytes);
  return pair;
}

}  // namespace tesser::transport
