#include "platform/job/resources_json.h"

#include <algorithm>

#include "base/json_members.h"

namespace tesser::platform {

std::string resources_json(const Resources& resources) {
  return JsonMembers()
      .add("millicpus", resources.millicpus)
      .add("memory_bytes", resources.memory_bytes)
      .add_text("accelerators", json_object(resources.accelerators))
      .object();
}

Resources read_resources(JsonReader& reader, const Json& json, std::string_view key) {
  Resources resources;
  const Json* found = json.find(key);
  if (found == nullptr) {
    reader.fail("'" + std::string(key) + "' is missing");
    return resources;
  }
  JsonReader members(*found, std::string(key));
  resources.millicpus = members.integer("millicpus", 0);
  resources.memory_bytes = members.integer("memory_bytes", 0);
  resources.accelerators = members.map<std::int64_t>("accelerators");
  if (std::any_of(resources.accelerators.begin(), resources.accelerators.end(),
                  [](const auto& each) { return each.second < 0; })) {
    members.fail("'accelerators' holds less than 0");
  }
  if (const Result<void> outcome = members.outcome(); !outcome) {
    reader.fail(outcome.error().message);
  }
  return resources;
}

}  // namespace tesser::platform
