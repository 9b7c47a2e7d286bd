// Resources in JSON: {"millicpus", "memory_bytes", "accelerators": {TYPE: COUNT}}.
//
// Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_reader.h"
#include "platform/job/resources.h"

namespace tesser::platform {

std::string resources_json(const Resources& resources);
// The member `key` of `json`, which `reader` reads.
Resources read_resources(JsonReader& reader, const Json& json, std::string_view key);

}  // namespace tesser::platform
