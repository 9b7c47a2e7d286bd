// Where the elements of a rectangle of a tensor lie in the whole tensor, both counted in row-major order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tesser::kernels {

// Immutable; any thread.
class TensorPart {
 public:
  // `size` elements from `begin` on in each dimension of a tensor of shape `whole`; of the same rank, inside it.
  TensorPart(const std::vector<std::int64_t>& size, const std::vector<std::int64_t>& whole,
             const std::vector<std::int64_t>& begin) {
    TESSER_CHECK(size.size() == whole.size() && begin.size() == whole.size(), "ranks that differ");
    std::int64_t stride = 1;
    bool joined = true;  // all dimensions so far are whole, so that the next one goes on where they end
    for (std::size_t d = whole.size(); d-- > 0;) {
      TESSER_CHECK(begin[d] >= 0 && size[d] >= 0 && begin[d] + size[d] <= whole[d], "a part outside the tensor");
      offset_ += begin[d] * stride;
      elements_ *= size[d];
      if (joined) {
        run_ *= size[d];
      } else if (size[d] != 1) {
        TESSER_CHECK(rank_ < kMostDimensions, "more than 64 dimensions");
        counts_[rank_] = size[d];
        strides_[rank_++] = stride;
      }
      joined = joined && size[d] == whole[d];
      stride *= whole[d];
    }
  }

  std::int64_t elements() const { return elements_; }

  // Calls use(element of the part, element of the whole, count) for each run of elements that lie together in the
  // whole, in order; together they are the elements [first, last) of the part.
  template <typename Use>
  void for_runs(std::int64_t first, std::int64_t last, const Use& use) const {
    if (first >= last) return;
    std::array<std::int64_t, kMostDimensions> at;  // of the dimensions outside a run; the first `rank_` are used
    std::int64_t rest = first / run_;
    std::int64_t start = offset_;
    for (std::size_t d = 0; d < rank_; ++d) {
      at[d] = rest % counts_[d];
      rest /= counts_[d];
      start += at[d] * strides_[d];
    }
    std::int64_t skipped = first % run_;
    for (std::int64_t done = first; done < last;) {
      const std::int64_t count = std::min(run_ - skipped, last - done);
      use(done, start + skipped, count);
      done += count;
      skipped = 0;
      for (std::size_t d = 0; d < rank_; ++d) {
        start += strides_[d];
        if (++at[d] < counts_[d]) break;
        start -= counts_[d] * strides_[d];
        at[d] = 0;
      }
    }
  }

 private:
  static constexpr std::size_t kMostDimensions = 64;  // of any tensor in PyTorch

  std::int64_t elements_ = 1;
  std::int64_t offset_ = 0;
  std::int64_t run_ = 1;
  std::size_t rank_ = 0;                                 // dimensions outside a run that have more than one element
  std::array<std::int64_t, kMostDimensions> counts_{};   // innermost first
  std::array<std::int64_t, kMostDimensions> strides_{};  // in the whole
};

}  // namespace tesser::kernels
