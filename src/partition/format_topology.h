// Topologies as JSON. Internal to this folder.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "partition/topology.h"

namespace tesser::partition {

std::string topology_json(const Topology& topology);

// The first defect is kept in `defect`, with `where` before it; the result then means nothing.
Topology topology_from_json(const Json& json, const std::string& where, std::optional<std::string>& defect);

}  // namespace tesser::partition
