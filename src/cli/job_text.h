// Jobs as people see them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/client/answers.h"

namespace tesser::cli {

// Columns as wide as their widest cell, two spaces between them; the first row is the head. The last is not filled.
std::string table(const std::vector<std::vector<std::string>>& rows);

// Seconds since 1970 of "2026-11-29T22:40:32.123456Z"; nothing for another text.
std::optional<double> seconds_of(std::string_view time);
// "12s", "3m", "5h", "2d" since then; "-" for no time.
std::string age_text(std::string_view time);

// "4 cpus, 8.0 GiB, 2 v100"
std::string resources_text(const platform::Resources& resources);
// "[#####     ]  50%  120/240  2:03 left"; empty when nothing is known.
std::string progress_text(const platform::JobProgress& progress);

// On a terminal: without control characters but tabs and colours, which a job's output could use to deceive.
std::string safe_line(const std::string& text, bool is_terminal);

}  // namespace tesser::cli
