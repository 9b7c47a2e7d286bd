#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"

namespace tesser::cli {

struct ShowPlanArguments {
  std::filesystem::path plan;
  std::optional<std::filesystem::path> program;  // instead of the one that the plan names
  std::optional<std::int64_t> worker;            // what this worker has and does
  bool compare = true;                           // with plans of the other presets
  bool json = false;
};

// Prints a plan (docs/formats/plan.md).
Result<int> show_plan(const ShowPlanArguments& arguments);

}  // namespace tesser::cli
