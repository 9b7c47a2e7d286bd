// The checksum that a JSON text file carries of itself: a line `"checksum":"1b2c3d4e",` after that of its version, the
// CRC-32 of all other bytes. Python's standard library has that one. A file without the line is not checked: people
// write such files by hand, and whoever changes one deletes the line.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace tesser {

// The text with that line. Its first line with a "version" must end the first members (aborts otherwise).
std::string with_checksum(std::string_view text);

// The text without that line.
std::string without_checksum(std::string_view text);

// What a person does who has changed such a file, as the end of a message.
inline constexpr std::string_view kAfterChangeByHand = "; if by hand, delete the line \"checksum\"";

// kInvalidInput where `text`, which is `json`, states another checksum than it has. Does not name the file.
Result<void> check_own_checksum(std::string_view text, const Json& json,
                                std::string_view what_to_do = kAfterChangeByHand);

}  // namespace tesser
