// Arithmetic of affine forms. Internal to this folder.
#pragma once

#include "tdl/binding.h"

namespace tesser::tdl {

AffineIndex affine_constant(std::int64_t constant);
AffineIndex affine_variable(int variable);
// Overflow, a product of variables, or a division by what is no positive number fails the binding.
AffineIndex affine_scaled(const AffineIndex& form, std::int64_t factor, Binding& binding);
AffineIndex affine_combined(Operation operation, const AffineIndex& a, const AffineIndex& b, Binding& binding);

// The variable that the form is as it was written, and nothing else; -1 when it is anything more.
int lone_variable(const AffineIndex& form);
bool same(const AffineIndex& a, const AffineIndex& b);

// Values over a box; the least is rounded up and the greatest down by the divisor. Empty when a variable's interval is.
Interval interval_of(const AffineIndex& form, const Box& box);

}  // namespace tesser::tdl
