// Reads programs in the format of docs/formats/program.md, strictly: whatever is accepted has also passed verify().
//
// Errors name the file, the node or entry, and the reason: kNotFound when there is no such file, kInvalidInput for what
// it holds.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/program.h"

namespace tesser::graph {

// `path` is a directory NAME.tesser, of which `which` ("program" or "forward") chooses the file, or a JSON file itself.
Result<Program> read_program(const std::filesystem::path& path, std::string_view which = "program");

// The same from text in memory; `file_name` is what errors call it.
Result<Program> parse_program(std::string_view text, const std::string& file_name);

}  // namespace tesser::graph
