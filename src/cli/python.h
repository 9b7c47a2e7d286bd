// The Python that captures steps.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tesser::cli {

// TESSER_PYTHON; else of the .venv nearest above this executable, or of where it was built; else as the build was told.
std::string find_python();

// The folder to put on its path for it to have the package tesser; none where that is installed, or missing.
std::optional<std::filesystem::path> find_python_package();

}  // namespace tesser::cli
