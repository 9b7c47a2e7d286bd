// Losses that average become sums and a division by the number of elements, or by the total weight of the targets: the
// average of a part is no part of the average.
#include <algorithm>
#include <cstdint>
#include <string>
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

constexpr std::int64_t kMean = 1;  // PyTorch's numbers of reductions; 0 is none
constexpr std::int64_t kSum = 2;

// How an operator of this family is called.
struct LossForm {
  std::size_t input;        // the place of the first of `input` and `target`
  std::size_t reduction;    // its place
  bool over_batch = false;  // averaged over samples, of which `input` [N, C] has N, rather than over elements
  std::vector<Argument> between = {};  // defaults of arguments before `reduction`, in case they are left out
};

bool is_mean(const Rewriter& rewriter, std::size_t place) {
  if (rewriter.node().args.size() <= place) return true;  // the default
  const Argument argument = rewriter.argument(place);
  const auto* const reduction = std::get_if<std::int64_t>(&argument);
  return reduction != nullptr && *reduction == kMean;
}

// What PyTorch divides by; 0 when the arguments are of another form.
std::int64_t averaged_count(const Rewriter& rewriter, const LossForm& form) {
  const ValueId input = rewriter.value(form.input);
  const ValueId target = rewriter.value(form.input + 1);
  if (input == kNone || target == kNone) return 0;
  const Shape& a = rewriter.new_value(input).shape;
  const Shape& b = rewriter.new_value(target).shape;
  if (form.over_batch) return a.size() < 2 ? 1 : a[0];
  std::int64_t count = 1;  // of both, broadcast
  for (std::size_t place = 0; place < std::max(a.size(), b.size()); ++place) {
    const std::int64_t of_a = place < a.size() ? a[a.size() - 1 - place] : 1;
    const std::int64_t of_b = place < b.size() ? b[b.size() - 1 - place] : 1;
    count *= of_a == 1 ? of_b : of_a;
  }
  return count;
}

// The current node's arguments, the reduction being the sum.
std::vector<Argument> summed_arguments(const Rewriter& rewriter, const LossForm& form) {
  std::vector<Argument> args;
  for (std::size_t place = 0; place < rewriter.node().args.size(); ++place) args.push_back(rewriter.argument(place));
  const std::size_t first_left_out = form.reduction - form.between.size();
  while (args.size() < form.reduction) args.push_back(form.between[args.size() - first_left_out]);
  args.resize(std::max(args.size(), form.reduction + 1));
  args[form.reduction] = kSum;
  return args;
}

bool average(Rewriter& rewriter, const LossForm& form) {
  const std::int64_t count = averaged_count(rewriter, form);
  const ValueId loss = rewriter.result(0);
  if (!is_mean(rewriter, form.reduction) || count == 0 || loss == kNone) return false;
  std::vector<std::optional<NewResult>> results = {NewResult{kNone, rewriter.source_value(loss).dtype, {}}};
  for (std::size_t place = 1; place < rewriter.node().outputs.size(); ++place) {
    results.push_back(rewriter.result(place) == kNone ? std::nullopt
                                                      : std::optional(in_place_of(rewriter.result(place))));
  }
  const ValueId sum = rewriter.add("sum", rewriter.node().op, summed_arguments(rewriter, form), results).front();
  rewriter.mark_forward();
  rewriter.add_one("", "aten::div.Scalar", {ValueRef{sum}, count}, in_place_of(loss));
  return true;
}

// The gradient of the loss, argument 0, divided by the count gives that of the sum.
bool average_backward(Rewriter& rewriter, const LossForm& form) {
  const std::int64_t count = averaged_count(rewriter, form);
  const ValueId gradient = rewriter.value(0);
  if (!is_mean(rewriter, form.reduction) || count == 0 || gradient == kNone || rewriter.result(0) == kNone)
    return false;
  NewResult scaled{kNone, rewriter.new_value(gradient).dtype, rewriter.new_value(gradient).shape};
  const ValueId share = rewriter.add_one("share", "aten::div.Scalar", {ValueRef{gradient}, count}, std::move(scaled));
  std::vector<Argument> args = summed_arguments(rewriter, form);
  args[0] = ValueRef{share};
  rewriter.add_one("", rewriter.node().op, std::move(args), in_place_of(rewriter.result(0)));
  return true;
}

const std::unordered_map<std::string_view, LossForm>& forward_forms() {
  static const std::unordered_map<std::string_view, LossForm> forms = {
      {"aten::mse_loss", {0, 2}},
      {"aten::l1_loss", {0, 2}},
      {"aten::smooth_l1_loss", {0, 2}},
      {"aten::huber_loss", {0, 2}},
      {"aten::soft_margin_loss", {0, 2}},
      {"aten::kl_div", {0, 2}},
      {"aten::binary_cross_entropy", {0, 3, false, {None{}}}},
      {"aten::binary_cross_entropy_with_logits", {0, 4, false, {None{}, None{}}}},
      {"aten::multi_margin_loss", {0, 5, true, {std::int64_t{1}, std::int64_t{1}, None{}}}},
      {"aten::multilabel_margin_loss_forward", {0, 2, true}},
  };
  return forms;
}

const std::unordered_map<std::string_view, LossForm>& backward_forms() {
  static const std::unordered_map<std::string_view, LossForm> forms = {
      {"aten::mse_loss_backward", {1, 3}},
      {"aten::smooth_l1_loss_backward", {1, 3}},
      {"aten::huber_loss_backward", {1, 3}},
      {"aten::soft_margin_loss_backward", {1, 3}},
      {"aten::binary_cross_entropy_backward", {1, 4, false, {None{}}}},
      {"aten::multi_margin_loss_backward", {1, 6, true, {None{}}}},
      {"aten::multilabel_margin_loss_backward", {1, 3, true}},
  };
  return forms;
}

bool rewrite_average(Rewriter& rewriter) { return average(rewriter, forward_forms().at(rewriter.node().op)); }

bool rewrite_average_backward(Rewriter& rewriter) {
  return average_backward(rewriter, backward_forms().at(rewriter.node().op));
}

// (self, target, weight?, int reduction, int ignore_index) -> (loss, total_weight)
bool rewrite_negative_log_likelihood(Rewriter& rewriter) {
  const ValueId loss = rewriter.result(0);
  const ValueId total_weight = rewriter.result(1);
  if (!is_mean(rewriter, 3) || loss == kNone || total_weight == kNone) return false;
  const graph::Value& value = rewriter.source_value(loss);
  const std::vector<ValueId> sums =
      rewriter.add("sum", rewriter.node().op, summed_arguments(rewriter, {0, 3}),
                   {NewResult{kNone, value.dtype, value.shape}, in_place_of(total_weight)});
  rewriter.mark_forward();
  rewriter.add_one("", "aten::div.Tensor", {ValueRef{sums[0]}, ValueRef{sums[1]}}, in_place_of(loss));
  return true;
}

// (grad_output, self, target, weight?, int reduction, int ignore_index, total_weight) -> gradient of self
bool rewrite_negative_log_likelihood_backward(Rewriter& rewriter) {
  constexpr std::size_t kTotalWeight = 6;
  const ValueId gradient = rewriter.value(0);
  const ValueId total_weight = rewriter.value(kTotalWeight);
  if (!is_mean(rewriter, 4) || gradient == kNone || total_weight == kNone || rewriter.result(0) == kNone) return false;
  NewResult scaled{kNone, rewriter.new_value(gradient).dtype, rewriter.new_value(gradient).shape};
  const ValueId share =
      rewriter.add_one("share", "aten::div.Tensor", {ValueRef{gradient}, ValueRef{total_weight}}, std::move(scaled));
  std::vector<Argument> args = summed_arguments(rewriter, {1, 4});
  args[0] = ValueRef{share};
  rewriter.add_one("", rewriter.node().op, std::move(args), in_place_of(rewriter.result(0)));
  return true;
}

}  // namespace

Rewriting find_loss_rewriting(std::string_view op) {
  if (op == "aten::nll_loss_forward" || op == "aten::nll_loss2d_forward") return rewrite_negative_log_likelihood;
  if (op == "aten::nll_loss_backward" || op == "aten::nll_loss2d_backward") {
    return rewrite_negative_log_likelihood_backward;
  }
  if (forward_forms().contains(op)) return rewrite_average;
  if (backward_forms().contains(op)) return rewrite_average_backward;
  return nullptr;
}

}  // namespace tesser::partition
