#include "graph/state.h"

namespace tesser::graph {

std::vector<ValueId> stored_values(const Program& program) {
  std::vector<ValueId> stored;
  for (const ValueId input : program.inputs) {
    const Value& value = program.value(input);
    if ((value.is_state() && !value.starts_as_zeros) || value.role == Role::kConstant) {
      stored.push_back(input);
    }
  }
  return stored;
}

Result<void> check_state(const Program& program, const SafetensorsFile& file) {
  for (const ValueId id : stored_values(program)) {
    const Value& value = program.value(id);
    const SafetensorsEntry* const entry = file.find(value.name);
    if (entry == nullptr) {
      return invalid_input(file.path().string() + ": " + file.absence(value.name) + "; the program starts from it");
    }
    const Shape& shape = value.whole_shape.empty() ? value.shape : value.whole_shape;
    if (entry->dtype != value.dtype || entry->shape != shape) {
      return invalid_input(file.path().string() + ": " + value.name + " is " + type_text(entry->dtype, entry->shape) +
                           ", but the program needs " + type_text(value.dtype, shape));
    }
  }
  return {};
}

Result<SafetensorsFile> open_state(const Program& program, const std::filesystem::path& directory) {
  Result<SafetensorsFile> file = SafetensorsFile::open(directory / "state.safetensors");
  if (!file.has_value()) {
    if (file.error().code == ErrorCode::kNotFound) {
      file.error().message += "; the program has no initial values, capture it again without --no-state";
    }
    return file;
  }
  TESSER_RETURN_IF_ERROR(check_state(program, *file));
  return file;
}

}  // namespace tesser::graph
