// Times as the API shows them: RFC 3339 in UTC with microseconds, "2026-11-29T22:40:32.123456Z".
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tesser::platform {

std::int64_t now_microseconds();  // since 1970
std::string time_text(std::int64_t microseconds);
std::optional<std::int64_t> time_from_text(std::string_view text);

}  // namespace tesser::platform
