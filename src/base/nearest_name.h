// What a person who wrote a wrong name meant.
//
// Values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tesser {

// The name that the fewest insertions, deletions, replacements and swaps of neighbours make out of `given`; nothing
// when even that takes more than a third of its letters (but always within two).
std::optional<std::string> nearest_name(std::string_view given, const std::vector<std::string>& names);

}  // namespace tesser
