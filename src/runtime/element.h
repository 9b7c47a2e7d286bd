// Single elements as double, for what the command prints and samples from.
#pragma once

#include <cstddef>

#include "base/tensor.h"

namespace tesser::runtime {

// Element `index` of row-major memory of this dtype; exact but for integers beyond 2^53.
double element_as_double(DType dtype, const void* data, std::size_t index);

}  // namespace tesser::runtime
