// A convolution's gradients become one node each: that of the input is concatenated where those of weight and bias are
// summed, so together they would have few cuts.
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "partition/expand_rewriter.h"

namespace tesser::partition {
namespace {

using graph::Argument;
using graph::kNone;
using graph::ValueId;
using graph::ValueRef;

// (grad_output, input, weight, int[]? bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
// bool[3] output_mask) -> (dx, dweight, dbias)
bool rewrite_backward(Rewriter& rewriter) {
  constexpr std::size_t kArguments = 11;
  constexpr std::string_view kSuffixes[] = {"input", "weight", "bias"};
  const ValueId dy = rewriter.value(0);
  if (rewriter.node().args.size() != kArguments || dy == kNone || rewriter.value(1) == kNone) return false;
  const Shape& shape = rewriter.new_value(dy).shape;
  if (shape.size() < 3 || rewriter.new_value(rewriter.value(1)).shape.size() != shape.size()) return false;
  const std::vector<ValueId>& results = rewriter.node().outputs;
  const auto wanted = std::count_if(results.begin(), results.end(), [](ValueId result) { return result != kNone; });
  if (wanted == 1 && rewriter.result(2) == kNone) return false;  // has only one already
  for (std::size_t place = 0; place < 2; ++place) {
    if (!rewriter.is_read(rewriter.result(place))) continue;
    std::vector<Argument> args;
    for (std::size_t index = 0; index + 1 < kArguments; ++index) args.push_back(rewriter.argument(index));
    args.push_back(std::vector<bool>{place == 0, place == 1, false});
    std::vector<std::optional<NewResult>> made(3);
    made[place] = in_place_of(rewriter.result(place));
    rewriter.add(kSuffixes[place], rewriter.node().op, std::move(args), made);
  }
  if (rewriter.is_read(rewriter.result(2))) {
    std::vector<std::int64_t> dims = {0};
    for (std::size_t dim = 2; dim < shape.size(); ++dim) dims.push_back(static_cast<std::int64_t>(dim));
    rewriter.add_one(kSuffixes[2], "aten::sum.dim_IntList", {ValueRef{dy}, dims, false},
                     in_place_of(rewriter.result(2)));
  }
  return true;
}

}  // namespace

Rewriting find_convolution_rewriting(std::string_view op) {
  return op == "aten::convolution_backward" ? rewrite_backward : nullptr;
}

}  // namespace tesser::partition
