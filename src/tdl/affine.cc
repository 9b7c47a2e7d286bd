#include "tdl/affine.h"

#include <algorithm>

namespace tesser::tdl {
namespace {

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t ceil_divided(std::int64_t a, std::int64_t b) { return -floor_divided(-a, b); }

std::int64_t times(std::int64_t a, std::int64_t b, Binding& binding) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    binding.fail("an index overflows");
    return 0;
  }
  return product;
}

std::int64_t plus(std::int64_t a, std::int64_t b, Binding& binding) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    binding.fail("an index overflows");
    return 0;
  }
  return sum;
}

}  // namespace

AffineIndex affine_constant(std::int64_t constant) {
  AffineIndex form;
  form.constant = constant;
  return form;
}

AffineIndex affine_variable(int variable) {
  AffineIndex form;
  form.coefficients.emplace_back(variable, 1);
  return form;
}

AffineIndex affine_scaled(const AffineIndex& form, std::int64_t factor, Binding& binding) {
  AffineIndex scaled;
  scaled.computed = true;
  if (factor == 0) {
    return scaled;
  }
  if (form.divisor != 1 && factor != 1) {
    binding.fail("a quotient that is rounded cannot be multiplied");
  }
  scaled.divisor = form.divisor;
  scaled.constant = times(form.constant, factor, binding);
  scaled.coefficients.reserve(form.coefficients.size());
  for (const auto& [variable, coefficient] : form.coefficients) {
    scaled.coefficients.emplace_back(variable, times(coefficient, factor, binding));
  }
  return scaled;
}

AffineIndex affine_combined(Operation operation, const AffineIndex& a, const AffineIndex& b, Binding& binding) {
  switch (operation) {
    case Operation::kAdd:
    case Operation::kSubtract: {
      const AffineIndex& other = operation == Operation::kAdd ? b : affine_scaled(b, -1, binding);
      AffineIndex sum = a;
      sum.computed = true;
      if (a.divisor != 1 || b.divisor != 1) {
        // (x / d) + n = (x + n * d) / d for integers n.
        if (b.divisor != 1 || !b.coefficients.empty()) {
          binding.fail("only a constant can be added to a quotient that is rounded");
          return sum;
        }
        sum.constant = plus(sum.constant, times(other.constant, a.divisor, binding), binding);
        return sum;
      }
      sum.constant = plus(sum.constant, other.constant, binding);
      for (const auto& [variable, coefficient] : other.coefficients) {
        const auto found = std::find_if(sum.coefficients.begin(), sum.coefficients.end(),
                                        [v = variable](const auto& entry) { return entry.first == v; });
        if (found == sum.coefficients.end()) {
          sum.coefficients.emplace_back(variable, coefficient);
          continue;
        }
        found->second = plus(found->second, coefficient, binding);
        if (found->second == 0) {
          sum.coefficients.erase(found);
        }
      }
      return sum;
    }
    case Operation::kMultiply:
      if (a.coefficients.empty() && a.divisor == 1) {
        return affine_scaled(b, a.constant, binding);
      }
      if (b.coefficients.empty() && b.divisor == 1) {
        return affine_scaled(a, b.constant, binding);
      }
      binding.fail("an index multiplies variables");
      return {};
    default: {
      if (!b.coefficients.empty() || b.divisor != 1 || b.constant <= 0) {
        binding.fail("an index or attribute is divided by what is no positive number");
        return {};
      }
      AffineIndex quotient = a;
      quotient.computed = true;
      if (a.coefficients.empty()) {
        quotient.constant = floor_divided(a.constant, b.constant);
        return quotient;
      }
      quotient.divisor = times(a.divisor, b.constant, binding);
      return quotient;
    }
  }
}

int lone_variable(const AffineIndex& form) {
  const bool lone = !form.computed && form.constant == 0 && form.divisor == 1 && form.coefficients.size() == 1 &&
                    form.coefficients.front().second == 1 && form.coefficients.front().first != kOffsetVariable;
  return lone ? form.coefficients.front().first : -1;
}

bool same(const AffineIndex& a, const AffineIndex& b) {
  return a.constant == b.constant && a.divisor == b.divisor && a.coefficients == b.coefficients;
}

Interval interval_of(const AffineIndex& form, const Box& box) {
  std::int64_t least = form.constant;
  std::int64_t greatest = form.constant;
  for (const auto& [variable, coefficient] : form.coefficients) {
    const Interval& interval = box[static_cast<std::size_t>(variable)];
    if (interval.empty()) {
      return {0, 0};
    }
    const std::int64_t at_begin = coefficient * interval.begin;
    const std::int64_t at_end = coefficient * (interval.end - 1);
    least += std::min(at_begin, at_end);
    greatest += std::max(at_begin, at_end);
  }
  if (form.divisor != 1) {
    least = ceil_divided(least, form.divisor);
    greatest = floor_divided(greatest, form.divisor);
  }
  return {least, greatest + 1};
}

}  // namespace tesser::tdl
