// A hub's figures as Prometheus reads them.
#pragma once

#include <string>
#include <vector>

#include "hub/job.h"

namespace tesser::hub {

// The text of /metrics. `refused`: requests that named no job of this hub or not its nonce.
std::string metrics_text(const std::vector<JobFigures>& jobs, std::uint64_t refused);

}  // namespace tesser::hub
