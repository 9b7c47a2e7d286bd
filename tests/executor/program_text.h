// Programs for tests, written as the format document shows them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "graph/program.h"
#include "graph/read.h"

namespace tesser::testing {

// A step program from its inputs, nodes and outputs, each the JSON entries of its array.
inline graph::Program step_program(const std::string& inputs, const std::string& nodes, const std::string& outputs) {
  const char* const base = std::getenv("TMPDIR");
  std::string directory = std::string(base == nullptr ? "/tmp" : base) + "/tesser_program_XXXXXX";
  EXPECT_NE(mkdtemp(directory.data()), nullptr);
  std::ofstream(directory + "/program.json")
      << R"({"format":"tesser.program","version":1,"name":"test","kind":"step","producer":"test","first_step":0,)"
      << R"("schedules":[{"kind":"constant","rate":0.5}],"inputs":[)" << inputs << R"(],"nodes":[)" << nodes
      << R"(],"outputs":[)" << outputs << "]}";
  auto program = graph::read_program(directory + "/program.json");
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(program.has_value()) << (program.has_value() ? "" : program.error().message);
  return std::move(*program);
}

}  // namespace tesser::testing
