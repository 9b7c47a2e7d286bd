// Operators that give a list of views become one view each, of which those that nobody reads are left out.
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "partition/expand_rewriter.h"

namespace tesser::partition {
namespace {

using graph::kNone;
using graph::ValueId;
using graph::ValueRef;

// (Tensor self, ..., int dim=0): `dim_place` is where the dimension stands. Nothing a scalar could be split by.
bool read_dim(const Rewriter& rewriter, std::size_t dim_place, std::int64_t& dim) {
  if (rewriter.value(0) == kNone) return false;
  const graph::Argument argument = rewriter.argument(dim_place);
  const auto* const given = std::get_if<std::int64_t>(&argument);
  const auto rank = static_cast<std::int64_t>(rewriter.new_value(rewriter.value(0)).shape.size());
  dim = given == nullptr ? 0 : *given;
  if (dim < 0) dim += rank;
  return dim >= 0 && dim < rank;
}

// The results' own sizes say where each begins.
bool slices(Rewriter& rewriter, std::size_t dim_place) {
  std::int64_t dim = 0;
  if (!read_dim(rewriter, dim_place, dim)) return false;
  for (const ValueId result : rewriter.node().outputs) {
    if (result == kNone) return false;
  }
  std::int64_t begin = 0;
  for (std::size_t place = 0; place < rewriter.node().outputs.size(); ++place) {
    const ValueId result = rewriter.result(place);
    const std::int64_t end = begin + rewriter.source_value(result).shape[static_cast<std::size_t>(dim)];
    if (rewriter.is_read(result)) {
      rewriter.add_one(std::to_string(place), "aten::slice.Tensor",
                       {ValueRef{rewriter.value(0)}, dim, begin, end, std::int64_t{1}}, in_place_of(result));
    }
    begin = end;
  }
  return true;
}

// (Tensor self, sizes or a number, int dim=0)
bool rewrite_split(Rewriter& rewriter) { return slices(rewriter, 2); }

// (Tensor self, int dim=0)
bool rewrite_unbind(Rewriter& rewriter) {
  std::int64_t dim = 0;
  if (!read_dim(rewriter, 1, dim)) return false;
  for (std::size_t place = 0; place < rewriter.node().outputs.size(); ++place) {
    const ValueId result = rewriter.result(place);
    if (!rewriter.is_read(result)) continue;
    rewriter.add_one(std::to_string(place), "aten::select.int",
                     {ValueRef{rewriter.value(0)}, dim, static_cast<std::int64_t>(place)}, in_place_of(result));
  }
  return true;
}

}  // namespace

Rewriting find_split_rewriting(std::string_view op) {
  static const std::unordered_map<std::string_view, Rewriting> table = {
      {"aten::split.Tensor", rewrite_split},
      {"aten::split.sizes", rewrite_split},
      {"aten::split_copy.Tensor", rewrite_split},
      {"aten::split_with_sizes", rewrite_split},
      {"aten::split_with_sizes_copy", rewrite_split},
      {"aten::unsafe_split.Tensor", rewrite_split},
      {"aten::unsafe_split_with_sizes", rewrite_split},
      {"aten::chunk", rewrite_split},
      {"aten::unsafe_chunk", rewrite_split},
      {"aten::unbind.int", rewrite_unbind},
      {"aten::unbind_copy.int", rewrite_unbind},
  };
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace tesser::partition
