// Initial values of a program, kept beside it in state.safetensors.
#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"
#include "base/safetensors.h"
#include "graph/program.h"

namespace tesser::graph {

// Inputs whose initial value the file must hold: state and constants, without those that start as zeros.
std::vector<ValueId> stored_values(const Program& program);

// Checks that the file holds each of them with its dtype and (whole) shape; other tensors are allowed (the step's and
// the forward program's values share one file). The error (kInvalidInput) names file and value.
Result<void> check_state(const Program& program, const SafetensorsFile& file);

// Opens NAME.tesser/state.safetensors and checks it. kNotFound, saying how to capture with state, when the program has
// none.
Result<SafetensorsFile> open_state(const Program& program, const std::filesystem::path& directory);

}  // namespace tesser::graph
