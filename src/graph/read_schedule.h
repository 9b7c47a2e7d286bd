// Internal to this folder.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "graph/program.h"

namespace tesser::graph {

// One entry of `schedules`; the first defect goes to `error`, after `where`.
Schedule read_schedule(const Json& json, const std::string& where, std::optional<std::string>& error);

}  // namespace tesser::graph
