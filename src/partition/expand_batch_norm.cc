// Batch normalisation in training: sums over the batch, which partial sums may make up; statistics of a few numbers a
// channel; and their use, element by element. So a batch that is cut is normalised as the whole that it is.
#include <string_view>
#include <unordered_map>
#include <vector>

#include "partition/expand_rewriter.h"

namespace tesser::partition {
namespace {

using graph::Argument;
using graph::kNone;
using graph::None;
using graph::ValueId;
using graph::ValueRef;

// Places of the forward operator's arguments; those it does not have are kAbsent.
constexpr std::size_t kAbsent = 100;
struct ForwardPlaces {
  std::size_t running_mean, running_var, training, momentum, eps;
};

// Elements that each channel's statistics are over; 0 when `x` is none of [N, C, ...] in float32.
std::int64_t elements_a_channel(const Rewriter& rewriter, ValueId x) {
  if (x == kNone) return 0;
  const graph::Value& value = rewriter.new_value(x);
  if (value.dtype != DType::kFloat32 || value.shape.size() < 2 || value.shape[1] == 0) return 0;
  return value.elements() / value.shape[1];
}

bool flag(const Argument& argument) {
  const bool* const boolean = std::get_if<bool>(&argument);
  return boolean != nullptr && *boolean;
}

NewResult channels(DType dtype, std::int64_t count) { return {kNone, dtype, {count}}; }

// Results: y, mean, inverse deviation, and from `new_running` on the new running mean and variance.
bool forward(Rewriter& rewriter, const ForwardPlaces& places, std::size_t new_running) {
  const ValueId x = rewriter.value(0);
  const std::int64_t count = elements_a_channel(rewriter, x);
  if (count == 0 || rewriter.result(0) == kNone) return false;
  if (places.training != kAbsent && !flag(rewriter.argument(places.training))) return false;
  const auto argument = [&](std::size_t place) {
    return place == kAbsent ? Argument(None{}) : rewriter.argument(place);
  };
  const std::int64_t width = rewriter.new_value(x).shape[1];

  const std::vector<ValueId> sums = rewriter.add("sums", "tesser::batch_norm_sums", {ValueRef{x}},
                                                 {channels(DType::kFloat64, width), channels(DType::kFloat64, width)});
  const auto statistic = [&](std::size_t place) {
    return rewriter.result(place) == kNone ? channels(DType::kFloat32, width) : in_place_of(rewriter.result(place));
  };
  std::vector<std::optional<NewResult>> results = {statistic(1), statistic(2)};
  const bool has_running = !std::holds_alternative<None>(argument(places.running_mean));
  for (std::size_t place : {new_running, new_running + 1}) {
    results.push_back(has_running ? std::optional(statistic(place)) : std::nullopt);
  }
  const std::vector<ValueId> statistics =
      rewriter.add("statistics", "tesser::batch_norm_statistics",
                   {ValueRef{sums[0]}, ValueRef{sums[1]}, argument(places.running_mean), argument(places.running_var),
                    count, argument(places.momentum), argument(places.eps)},
                   results);
  rewriter.add_one(
      "", "tesser::batch_norm_apply",
      {ValueRef{x}, rewriter.argument(1), rewriter.argument(2), ValueRef{statistics[0]}, ValueRef{statistics[1]}},
      in_place_of(rewriter.result(0)));
  return true;
}

// (input, weight?, bias?, running_mean, running_var, bool training, float momentum, float eps) -> (y, mean, rstd, new
// running mean, new running variance)
bool rewrite_functional(Rewriter& rewriter) { return forward(rewriter, {3, 4, 5, 6, 7}, 3); }

// The same without running statistics: (input, weight?, bias?, bool training, float momentum, float eps)
bool rewrite_without_statistics(Rewriter& rewriter) { return forward(rewriter, {kAbsent, kAbsent, 3, 4, 5}, 3); }

// As the functional one. It would change running statistics in place, which a program does not.
bool rewrite_native(Rewriter& rewriter) {
  if (rewriter.value(3) != kNone || rewriter.value(4) != kNone) return false;
  return forward(rewriter, {3, 4, 5, 6, 7}, 3);
}

// (input, weight?, bias?, running_mean, running_var, float momentum, float eps) -> (y, mean, rstd, reserve, new running
// mean, new running variance)
bool rewrite_with_update(Rewriter& rewriter) {
  return !rewriter.is_read(rewriter.result(3)) && forward(rewriter, {3, 4, kAbsent, 5, 6}, 4);
}

// (grad_out, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?, bool train, float eps, bool[3]
// output_mask) -> (dx, dweight, dbias)
bool rewrite_backward(Rewriter& rewriter) {
  const ValueId dy = rewriter.value(0);
  const ValueId x = rewriter.value(1);
  const ValueId mean = rewriter.value(5);
  const ValueId deviation = rewriter.value(6);
  const std::int64_t count = elements_a_channel(rewriter, x);
  if (count == 0 || dy == kNone || mean == kNone || deviation == kNone || !flag(rewriter.argument(7))) return false;
  const std::int64_t width = rewriter.new_value(x).shape[1];
  const std::vector<ValueId> sums = rewriter.add("sums", "tesser::batch_norm_backward_sums",
                                                 {ValueRef{dy}, ValueRef{x}, ValueRef{mean}, ValueRef{deviation}},
                                                 {channels(DType::kFloat64, width), channels(DType::kFloat64, width)});
  const auto convert = [&](std::size_t place, std::string_view suffix, ValueId from) {
    if (!rewriter.is_read(rewriter.result(place))) return;
    rewriter.add_one(suffix, "aten::_to_copy",
                     {ValueRef{from}, dtype_argument(rewriter.source_value(rewriter.result(place)).dtype)},
                     in_place_of(rewriter.result(place)));
  };
  convert(1, "weight", sums[1]);
  convert(2, "bias", sums[0]);
  if (rewriter.is_read(rewriter.result(0))) {
    rewriter.add_one("", "tesser::batch_norm_backward_apply",
                     {ValueRef{dy}, ValueRef{x}, rewriter.argument(2), ValueRef{mean}, ValueRef{deviation},
                      ValueRef{sums[0]}, ValueRef{sums[1]}, count},
                     in_place_of(rewriter.result(0)));
  }
  return true;
}

}  // namespace

Rewriting find_batch_norm_rewriting(std::string_view op) {
  static const std::unordered_map<std::string_view, Rewriting> table = {
      {"aten::_native_batch_norm_legit_functional", rewrite_functional},
      {"aten::_native_batch_norm_legit.no_stats", rewrite_without_statistics},
      {"aten::native_batch_norm", rewrite_native},
      {"aten::_batch_norm_with_update_functional", rewrite_with_update},
      {"aten::native_batch_norm_backward", rewrite_backward},
      {"aten::batch_norm_backward", rewrite_backward},  // with one argument more, which only other devices use
  };
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace tesser::partition
