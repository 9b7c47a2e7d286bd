#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tesser::cli {

// "1.5 GiB", "12 bytes"
std::string bytes_text(std::int64_t bytes);

// "12GiB", "1.5 MB", "800000000": units B, kB to TB of thousands and KiB to TiB of 1024, large or small letters.
// Nothing for another text.
std::optional<std::int64_t> bytes_from_text(std::string_view text);

// "1:02:03", "2:03"
std::string duration_text(double seconds);

}  // namespace tesser::cli
