// Events of a run (docs/formats/events.md) as people read them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tesser::cli {

// A line that `tesser train --json` has written, in the words it has for people; nothing for any other line.
std::optional<std::string> event_text(std::string_view line);

}  // namespace tesser::cli
