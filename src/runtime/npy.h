// Reads numpy's .npy header (formats 1.0, 2.0 and 3.0) out of a file's bytes.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "base/tensor.h"

namespace tesser::runtime {

// Where the tensor lies inside `bytes`: little endian, C order. The view points into the bytes and may be unaligned;
// nothing is copied. kInvalidInput, naming `file`, for a malformed, truncated or over-long file, Fortran or big-endian
// order, and dtypes tesser does not have.
Result<TensorView> parse_npy(const std::string& file, const std::byte* bytes, std::size_t size);

}  // namespace tesser::runtime
