#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/file.h"
#include "graph/read.h"

namespace tesser::graph {

// The text of a program kept in this folder; each holds every key and every kind of argument that its kind of program
// can have.
inline std::string sample_text(std::string_view name) {
  return read_file(std::string(TESSER_SOURCE_DIR "/tests/graph/programs/").append(name)).value();
}

inline Program sample(std::string_view name) {
  Result<Program> program = parse_program(sample_text(name), std::string(name));
  EXPECT_TRUE(program.has_value()) << (program.has_value() ? "" : program.error().message);
  return std::move(program).value();
}

}  // namespace tesser::graph
