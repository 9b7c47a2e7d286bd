// Means, variances and norms: their reductions become sums (or maxima) of the whole, everything else elementwise.
#include <algorithm>
#include <cmath>
#include <optional>
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

// Which dimensions of `x` are reduced.
struct Reduced {
  ValueId x = kNone;               // of the new program
  std::vector<std::int64_t> dims;  // 0 or more, rising
  bool keepdim = false;
  std::int64_t count = 1;  // elements of x an element of the result
};

// none and the empty list mean all dimensions. Nothing when an argument is not of the form this takes.
std::optional<Reduced> reduced(const Rewriter& rewriter, ValueId x, const Argument& dims, bool keepdim) {
  if (x == kNone) return std::nullopt;
  Reduced made;
  made.x = x;
  made.keepdim = keepdim;
  const Shape& shape = rewriter.new_value(x).shape;
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (const auto* const one = std::get_if<std::int64_t>(&dims)) {
    made.dims = {*one};
  } else if (const auto* const list = std::get_if<std::vector<std::int64_t>>(&dims)) {
    made.dims = *list;
  } else if (!std::holds_alternative<None>(dims)) {
    return std::nullopt;
  }
  for (std::int64_t& dim : made.dims) {
    if (dim < 0) dim += rank;
    if (rank > 0 && (dim < 0 || dim >= rank)) return std::nullopt;
  }
  if (rank == 0) made.dims.clear();  // dimension 0 or -1 of a scalar is allowed and means nothing
  if (made.dims.empty()) {
    for (std::int64_t dim = 0; dim < rank; ++dim) made.dims.push_back(dim);
  }
  std::sort(made.dims.begin(), made.dims.end());
  for (const std::int64_t dim : made.dims) made.count *= shape[static_cast<std::size_t>(dim)];
  return made;
}

Shape reduced_shape(const Shape& shape, const std::vector<std::int64_t>& dims, bool keepdim) {
  Shape result;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (!std::binary_search(dims.begin(), dims.end(), static_cast<std::int64_t>(dim))) {
      result.push_back(shape[dim]);
    } else if (keepdim) {
      result.push_back(1);
    }
  }
  return result;
}

bool flag(const Argument& argument) {
  const bool* const boolean = std::get_if<bool>(&argument);
  return boolean != nullptr && *boolean;
}

std::optional<double> number(const Argument& argument) {
  if (const auto* const real = std::get_if<double>(&argument)) return *real;
  if (const auto* const integer = std::get_if<std::int64_t>(&argument)) return static_cast<double>(*integer);
  return std::nullopt;
}

// What sums of it are taken in, as ATen does.
DType accumulated(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

ValueId reduction(Rewriter& rewriter, std::string_view suffix, std::string op, const Reduced& over, DType dtype,
                  NewResult result) {
  std::vector<Argument> args = {ValueRef{over.x}, over.dims, over.keepdim};
  if (rewriter.new_value(over.x).dtype != dtype) args.push_back(dtype_argument(dtype));
  return rewriter.add_one(suffix, std::move(op), std::move(args), std::move(result));
}

ValueId sum(Rewriter& rewriter, std::string_view suffix, const Reduced& over, DType dtype) {
  return reduction(rewriter, suffix, "aten::sum.dim_IntList", over, dtype,
                   {kNone, dtype, reduced_shape(rewriter.new_value(over.x).shape, over.dims, over.keepdim)});
}

std::vector<Argument> called_on(ValueId x, const std::vector<Argument>& others) {
  std::vector<Argument> args = {ValueRef{x}};
  args.insert(args.end(), others.begin(), others.end());
  return args;
}

ValueId elementwise(Rewriter& rewriter, std::string_view suffix, std::string op, ValueId x,
                    const std::vector<Argument>& others) {
  NewResult result{kNone, rewriter.new_value(x).dtype, rewriter.new_value(x).shape};
  return rewriter.add_one(suffix, std::move(op), called_on(x, others), std::move(result));
}

ValueId converted(Rewriter& rewriter, std::string_view suffix, ValueId x, DType dtype) {
  if (rewriter.new_value(x).dtype == dtype) return x;
  NewResult result{kNone, dtype, rewriter.new_value(x).shape};
  return rewriter.add_one(suffix, "aten::_to_copy", {ValueRef{x}, dtype_argument(dtype)}, std::move(result));
}

// The last operator of a rewriting, whose result takes the place of `replaced`, converted where sums were wider.
void finish(Rewriter& rewriter, std::string op, ValueId x, const std::vector<Argument>& others, ValueId replaced) {
  if (rewriter.new_value(x).dtype == rewriter.source_value(replaced).dtype) {
    rewriter.add_one("", std::move(op), called_on(x, others), in_place_of(replaced));
  } else {
    const ValueId wide = elementwise(rewriter, "wide", std::move(op), x, others);
    rewriter.add_one("", "aten::_to_copy", {ValueRef{wide}, dtype_argument(rewriter.source_value(replaced).dtype)},
                     in_place_of(replaced));
  }
}

bool mean(Rewriter& rewriter, const Argument& dims, bool keepdim) {
  const auto over = reduced(rewriter, rewriter.value(0), dims, keepdim);
  const ValueId result = rewriter.result(0);
  if (!over || result == kNone) return false;
  const ValueId total = sum(rewriter, "sum", *over, accumulated(rewriter.source_value(result).dtype));
  rewriter.mark_forward();
  finish(rewriter, "aten::div.Scalar", total, {over->count}, result);
  return true;
}

// (Tensor self, *, dtype)
bool rewrite_mean(Rewriter& rewriter) { return mean(rewriter, None{}, false); }

// (Tensor self, int[1]? dim, bool keepdim, *, dtype)
bool rewrite_mean_dim(Rewriter& rewriter) { return mean(rewriter, rewriter.argument(1), flag(rewriter.argument(2))); }

// Variance or standard deviation, and the mean where the operator gives it.
bool spread(Rewriter& rewriter, const Argument& dims, bool keepdim, double correction) {
  const std::string_view op = rewriter.node().op;
  const bool root = op.starts_with("aten::std");
  const ValueId result = rewriter.result(0);
  const ValueId mean_result = rewriter.result(1);
  if (result == kNone || !is_floating(rewriter.source_value(result).dtype) ||
      !reduced(rewriter, rewriter.value(0), dims, keepdim)) {
    return false;
  }
  const ValueId x = converted(rewriter, "x", rewriter.value(0), accumulated(rewriter.source_value(result).dtype));
  const DType dtype = rewriter.new_value(x).dtype;
  Reduced over = *reduced(rewriter, x, dims, true);

  const ValueId total = sum(rewriter, "sum", over, dtype);
  const ValueId mean = elementwise(rewriter, "mean", "aten::div.Scalar", total, {over.count});
  const ValueId centred = elementwise(rewriter, "centred", "aten::sub.Tensor", x, {ValueRef{mean}});
  over.x = elementwise(rewriter, "squares", "aten::mul.Tensor", centred, {ValueRef{centred}});
  over.keepdim = keepdim;
  const ValueId squares = sum(rewriter, "square_sum", over, dtype);
  rewriter.mark_forward();
  const double divisor = std::max(static_cast<double>(over.count) - correction, 0.0);
  if (root) {
    const ValueId variance = elementwise(rewriter, "variance", "aten::div.Scalar", squares, {divisor});
    finish(rewriter, "aten::sqrt", variance, {}, result);
  } else {
    finish(rewriter, "aten::div.Scalar", squares, {divisor}, result);
  }
  if (rewriter.is_read(mean_result)) {
    const graph::Value& wanted = rewriter.source_value(mean_result);
    const ValueId narrow = converted(rewriter, "narrow_mean", mean, wanted.dtype);
    rewriter.add_one("given_mean", "aten::view", {ValueRef{narrow}, wanted.shape}, in_place_of(mean_result));
  }
  return true;
}

// (Tensor self, bool unbiased=True)
bool rewrite_spread(Rewriter& rewriter) {
  const bool biased = rewriter.node().args.size() > 1 && !flag(rewriter.argument(1));
  return spread(rewriter, None{}, false, biased ? 0 : 1);
}

// (Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False)
bool rewrite_spread_dim(Rewriter& rewriter) {
  const bool biased = rewriter.node().args.size() > 2 && !flag(rewriter.argument(2));
  return spread(rewriter, rewriter.argument(1), flag(rewriter.argument(3)), biased ? 0 : 1);
}

// (Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)
bool rewrite_spread_correction(Rewriter& rewriter) {
  return spread(rewriter, rewriter.argument(1), flag(rewriter.argument(3)), number(rewriter.argument(2)).value_or(1));
}

bool norm(Rewriter& rewriter, double order, const Argument& dims, bool keepdim) {
  const ValueId result = rewriter.result(0);
  if (result == kNone || std::isnan(order) || !reduced(rewriter, rewriter.value(0), dims, keepdim)) return false;
  const DType dtype = accumulated(rewriter.source_value(result).dtype);
  if (!is_floating(dtype)) return false;
  const ValueId x = converted(rewriter, "x", rewriter.value(0), dtype);
  Reduced over = *reduced(rewriter, x, dims, keepdim);
  if (over.count == 1 && order != 0) order = 1;  // every other norm of one element is the same, and may overflow

  if (order == 0) {
    over.x = rewriter.add_one("nonzero", "aten::ne.Scalar", {ValueRef{x}, std::int64_t{0}},
                              {kNone, DType::kBool, rewriter.new_value(x).shape});
  } else if (order == 2) {
    over.x = elementwise(rewriter, "squares", "aten::mul.Tensor", x, {ValueRef{x}});
  } else {
    over.x = elementwise(rewriter, "absolute", "aten::abs", x, {});
    if (order != 1 && std::isfinite(order)) {
      over.x = elementwise(rewriter, "powers", "aten::pow.Tensor_Scalar", over.x, {order});
    }
  }
  const char* const op = std::isfinite(order) ? "aten::sum.dim_IntList" : order > 0 ? "aten::amax" : "aten::amin";
  const bool has_root = order != 0 && order != 1 && std::isfinite(order);
  if (!has_root && rewriter.source_value(result).dtype == dtype) {
    reduction(rewriter, "", op, over, dtype, in_place_of(result));
    return true;
  }
  const NewResult whole{kNone, dtype, reduced_shape(rewriter.new_value(x).shape, over.dims, over.keepdim)};
  const ValueId total = reduction(rewriter, "sum", op, over, dtype, whole);
  rewriter.mark_forward();
  if (!has_root) {
    rewriter.add_one("", "aten::_to_copy", {ValueRef{total}, dtype_argument(rewriter.source_value(result).dtype)},
                     in_place_of(result));
  } else if (order == 2) {
    finish(rewriter, "aten::sqrt", total, {}, result);
  } else {
    finish(rewriter, "aten::pow.Tensor_Scalar", total, {1 / order}, result);
  }
  return true;
}

// (Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, dtype), and aten::norm with dimensions, whose
// order none is 2
bool rewrite_norm(Rewriter& rewriter) {
  return norm(rewriter, number(rewriter.argument(1)).value_or(2), rewriter.argument(2), flag(rewriter.argument(3)));
}

// (Tensor self, Scalar? p=2) or (Tensor self, Scalar? p, *, dtype)
bool rewrite_whole_norm(Rewriter& rewriter) {
  return norm(rewriter, number(rewriter.argument(1)).value_or(2), None{}, false);
}

}  // namespace

Rewriting find_reduction_rewriting(std::string_view op) {
  static const std::unordered_map<std::string_view, Rewriting> table = {
      {"aten::mean", rewrite_mean},
      {"aten::mean.dim", rewrite_mean_dim},
      {"aten::var", rewrite_spread},
      {"aten::var.dim", rewrite_spread_dim},
      {"aten::var.correction", rewrite_spread_correction},
      {"aten::std", rewrite_spread},
      {"aten::std.dim", rewrite_spread_dim},
      {"aten::std.correction", rewrite_spread_correction},
      {"aten::var_mean", rewrite_spread},
      {"aten::var_mean.dim", rewrite_spread_dim},
      {"aten::var_mean.correction", rewrite_spread_correction},
      {"aten::std_mean", rewrite_spread},
      {"aten::std_mean.dim", rewrite_spread_dim},
      {"aten::std_mean.correction", rewrite_spread_correction},
      {"aten::linalg_vector_norm", rewrite_norm},
      {"aten::norm.ScalarOpt_dim", rewrite_norm},
      {"aten::norm.ScalarOpt_dim_dtype", rewrite_norm},
      {"aten::norm.Scalar", rewrite_whole_norm},
      {"aten::norm.ScalarOpt_dtype", rewrite_whole_norm},
  };
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace tesser::partition
