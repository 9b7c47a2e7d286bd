// Resources in words for people: "4 cpus, 8 GiB, 1 v100".
//
// Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "platform/job/resources.h"

namespace tesser::platform {

// More memory than can be counted, as a node has that gives none.
inline constexpr std::int64_t kAnyMemory = INT64_MAX;

// What of `amounts` counts for who needs `needs`; amounts below 0 count as 0.
std::string amounts_text(const Resources& amounts, const Resources& needs);
std::string learners_text(std::int64_t count);                         // "1 learner", "3 learners"
std::string needs_text(std::int64_t learners, const Resources& each);  // "needs 3 learners with 1 cpu each"

}  // namespace tesser::platform
