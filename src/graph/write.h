#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "graph/program.h"

namespace tesser::graph {

// The canonical text of a verified program (docs/formats/program.md): the same program gives the same bytes, and
// reading them gives the same program.
std::string program_text(const Program& program);

// That text with its checksum: what stands in a file.
std::string program_file_text(const Program& program);

// Writes it; the file appears complete or not at all.
Result<void> write_program(const Program& program, const std::filesystem::path& file);

}  // namespace tesser::graph
