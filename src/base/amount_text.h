// Amounts as people write and read them.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tesser {

// "1.5 GiB", "12 bytes"
std::string bytes_text(std::int64_t bytes);

// "12GiB", "1.5 MB", "800000000": units B, kB to TB of thousands, and KiB to TiB of 1024, which Ki and K are short for;
// large or small letters. Nothing for another text.
std::optional<std::int64_t> bytes_from_text(std::string_view text);

// "1:02:03", "2:03"
std::string duration_text(double seconds);

// "90m", "1h30m", "2 d", "45": days, hours, minutes and seconds, each whole and at most once, the larger first; seconds
// where there is no unit. Nothing for another text and for more than 100 years.
std::optional<std::int64_t> seconds_from_text(std::string_view text);

}  // namespace tesser
