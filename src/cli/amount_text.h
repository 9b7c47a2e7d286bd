#pragma once

#include <cstdint>
#include <string>

namespace tesser::cli {

// "1.5 GiB", "12 bytes"
std::string bytes_text(std::int64_t bytes);

// "1:02:03", "2:03"
std::string duration_text(double seconds);

}  // namespace tesser::cli
