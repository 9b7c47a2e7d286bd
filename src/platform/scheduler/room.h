// Whether a cluster is large enough for a job at all, however little of it is free.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/job/resources.h"

namespace tesser::platform {

// Why the learners could not run even if nothing else did, on nodes that are not ready either, with how many would;
// empty: they could.
std::string why_never(std::int64_t learners, const Resources& each, const std::vector<Node>& nodes);

}  // namespace tesser::platform
