#include "tdl/views.h"

#include <numeric>

#include "base/check.h"
#include "tdl/affine.h"

namespace tesser::tdl {
namespace {

// Adds a group of dimensions [begin, end) of one side: `unit` rows of its first dimension belong to one value of
// `block`; what is inside a block, and every dimension further in, is needed whole. Dimensions of size 1 are index 0.
void add_group(const Shape& shape, std::size_t begin, std::size_t end, int block, std::int64_t blocks,
               const std::string& name, std::vector<AffineIndex>& index, std::vector<Variable>& variables) {
  bool first = true;
  for (std::size_t d = begin; d < end; ++d) {
    if (shape[d] == 1) {
      continue;
    }
    AffineIndex& form = index[d];
    const std::int64_t unit = first ? shape[d] / blocks : shape[d];
    if (first) {
      form.coefficients.emplace_back(block, unit);
    }
    if (unit > 1) {
      form.coefficients.emplace_back(static_cast<int>(variables.size()), 1);
      variables.push_back({name + "." + std::to_string(d), unit, true});
    }
    first = false;
  }
}

std::int64_t first_size(const Shape& shape, std::size_t begin, std::size_t end) {
  while (begin < end && shape[begin] == 1) {
    ++begin;
  }
  return begin < end ? shape[begin] : 1;
}

}  // namespace

View match_view(const Shape& from, const Shape& to, std::vector<Variable>& variables) {
  TESSER_CHECK(element_count(from) == element_count(to), shape_text(from) + " and " + shape_text(to));
  View view{std::vector<AffineIndex>(from.size()), std::vector<AffineIndex>(to.size())};
  if (element_count(from) == 0) {
    // Nothing to cut: every dimension whole.
    for (const auto& [shape, index, name] : {std::tuple(&from, &view.from, "x"), std::tuple(&to, &view.to, "y")}) {
      for (std::size_t d = 0; d < shape->size(); ++d) {
        (*index)[d] = affine_variable(static_cast<int>(variables.size()));
        variables.push_back({std::string(name) + "." + std::to_string(d), (*shape)[d], true});
      }
    }
    return view;
  }
  std::size_t a = 0;
  std::size_t b = 0;
  for (int group = 0; a < from.size() || b < to.size(); ++group) {
    const std::size_t a_begin = a;
    const std::size_t b_begin = b;
    std::int64_t a_product = a < from.size() ? from[a++] : 1;
    std::int64_t b_product = b < to.size() ? to[b++] : 1;
    while (a_product != b_product) {
      if (a_product < b_product) {
        a_product *= from[a++];
      } else {
        b_product *= to[b++];
      }
    }
    if (a_product == 1) {
      continue;
    }
    const std::int64_t blocks = std::gcd(first_size(from, a_begin, a), first_size(to, b_begin, b));
    const int block = static_cast<int>(variables.size());
    variables.push_back({"i." + std::to_string(group), blocks, false});
    add_group(from, a_begin, a, block, blocks, "x", view.from, variables);
    add_group(to, b_begin, b, block, blocks, "y", view.to, variables);
  }
  return view;
}

}  // namespace tesser::tdl
