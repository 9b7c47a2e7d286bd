#include "runtime/export.h"

#include <set>
#include <utility>
#include <vector>

#include "base/safetensors.h"

namespace tesser::runtime {

Result<Exported> export_weights(const Checkpoint& checkpoint, AtomicFile output) {
  std::vector<SafetensorsEntry> entries;
  std::vector<std::pair<std::string, const StateValue*>> names;
  Exported exported;
  for (const StateValue& value : checkpoint.values()) {
    if (!value.in_state_dict()) {
      continue;
    }
    names.emplace_back(value.name, &value);
    for (const std::string& alias : value.aliases) {
      names.emplace_back(alias, &value);
    }
  }
  std::set<std::string> seen;
  for (const auto& [name, value] : names) {
    if (!seen.insert(name).second) {
      return invalid_input((checkpoint.path() / "manifest.json").string() + ": names '" + name + "' twice");
    }
    entries.push_back({name, value->dtype, value->shape});
  }
  TESSER_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::create(std::move(output), std::move(entries), {{"format", "pt"}}));
  for (const auto& [name, value] : names) {
    const TensorView content = *checkpoint.find(value->name);
    TESSER_RETURN_IF_ERROR(writer.write(name, content));
    ++exported.tensors;
    exported.bytes += static_cast<std::int64_t>(content.bytes());
  }
  TESSER_RETURN_IF_ERROR(writer.commit());
  return exported;
}

}  // namespace tesser::runtime
