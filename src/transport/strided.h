// Where the bytes of a tensor, or of a rectangle of one, lie in a region.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/tensor.h"

namespace tesser::transport {

// Equal runs of bytes: one run when there are no axes, else one for each index into the axes, outermost first. Runs may
// overlap in a source and must not in a destination.
struct Strided {
  struct Axis {
    std::uint64_t count = 0;
    std::uint64_t pitch = 0;  // bytes from one index to the next
  };
  std::uint64_t offset = 0;  // of the first run, from the region's begin
  std::uint64_t run_bytes = 0;
  std::vector<Axis> axes;

  static Strided contiguous(std::uint64_t offset, std::uint64_t bytes) { return {offset, bytes, {}}; }

  // Only for layouts that checked_end() accepts.
  std::uint64_t bytes() const;
  std::uint64_t runs() const;
  // One past the last byte; nothing when the layout has more than 8 axes, an axis of count 0, or an end or a number of
  // bytes of 2^62 or more.
  std::optional<std::uint64_t> checked_end() const;
};

// The rectangle [begin, begin + extent) of a contiguous row-major tensor that lies at `offset`, with as few runs as
// possible. Aborts when the rectangle is not inside the tensor.
Strided rectangle(std::uint64_t offset, DType dtype, const Shape& tensor, const Shape& begin, const Shape& extent);

// A place in a layout, which it keeps. Must not be moved past the end.
class RunCursor {
 public:
  explicit RunCursor(Strided layout);

  std::uint64_t offset() const { return run_begin_ + inside_; }
  std::uint64_t left_in_run() const { return layout_.run_bytes - inside_; }
  std::uint64_t left() const { return left_; }
  // Over at most left_in_run() bytes.
  void advance(std::uint64_t bytes);

 private:
  Strided layout_;
  std::vector<std::uint64_t> index_;
  std::uint64_t run_begin_;
  std::uint64_t inside_ = 0;
  std::uint64_t left_;
};

// Walks two layouts of the same number of bytes together.
class RunPairs {
 public:
  RunPairs(const Strided& first, const Strided& second);

  struct Pair {
    std::uint64_t first = 0;   // offset in the first's region
    std::uint64_t second = 0;  // offset in the second's region
    std::uint64_t bytes = 0;
  };
  // The next bytes that lie together in both; nothing at the end.
  std::optional<Pair> next();

 private:
  RunCursor first_;
  RunCursor second_;
};

}  // namespace tesser::transport
