// Puts the parts of a result together again, and compares results. For checks of descriptions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "tdl/check_case.h"
#include "tdl/semantics.h"

namespace tesser::runtime {

// One result of one part: `data` covers local.produced.
struct ResultPart {
  tdl::LocalResult local;
  tdl::TensorData data;
};

// What is wrong with the parts: two make the same element, none makes one, or the first element that differs from
// `expected` by more than `tolerance` (0: it must be equal), relative to `scale`. Nothing when they are the whole.
std::optional<std::string> compare_parts(const std::vector<ResultPart>& parts, const tdl::TensorData& expected,
                                         double tolerance);

// The elements [region) of a tensor with zeros where it reaches outside; all zeros when `zero`.
tdl::TensorData cut_out(const tdl::TensorData& whole, const tdl::Region& region, bool zero);

// The largest magnitude of the finite elements.
double largest_magnitude(const tdl::TensorData& data);

}  // namespace tesser::runtime
