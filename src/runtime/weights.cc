#include "runtime/weights.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "graph/state.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;

std::optional<TensorView> find_in(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* entry = file.find(name);
  return entry != nullptr ? std::optional(file.view(*entry)) : std::nullopt;
}
std::optional<TensorView> find_in(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.find(name);
}

const Shape& whole_shape(const graph::Value& value) {
  return value.whole_shape.empty() ? value.shape : value.whole_shape;
}
Rectangle place_of(const graph::Value& value) {
  return value.whole_shape.empty() ? whole_rectangle(value.shape) : Rectangle{value.region_begin, value.shape};
}

// Writes the value, or the part of it that the program has, out of the whole content of `file`.
Result<void> write_from(Executor& executor, const graph::Value& value, const std::optional<TensorView>& content,
                        const Path& file, std::vector<std::byte>& memory) {
  const std::string& program = executor.program().name;
  if (!content) {
    return invalid_input(fmt::format("{}: has no '{}', which program '{}' needs", file.string(), value.name, program));
  }
  if (content->dtype != value.dtype || content->shape != whole_shape(value)) {
    return invalid_input(fmt::format("{}: '{}' is {}, program '{}' expects {}", file.string(), value.name,
                                     type_text(content->dtype, content->shape), program,
                                     type_text(value.dtype, whole_shape(value))));
  }
  if (value.whole_shape.empty()) {
    return executor.write_state(value.name, *content);
  }
  memory.resize(std::max(memory.size(), static_cast<std::size_t>(value.bytes())));
  const Rectangle place = place_of(value);
  copy_rectangle(element_size(value.dtype), place, static_cast<const std::byte*>(content->data),
                 whole_rectangle(content->shape), memory.data(), place);
  return executor.write_state(value.name, {value.dtype, value.shape, memory.data()});
}

// Writes every state value and constant. `write_trained` is asked for each state value; false from it means that the
// value comes from state.safetensors.
Result<void> write_inputs(Executor& executor, const Path& program_directory,
                          const std::function<Result<bool>(const graph::Value&)>& write_trained) {
  std::optional<SafetensorsFile> initial;
  std::vector<std::byte> memory;
  const graph::Program& program = executor.program();
  for (const graph::ValueId id : program.inputs) {
    const graph::Value& value = program.value(id);
    if (!value.is_state() && value.role != graph::Role::kConstant) {
      continue;
    }
    if (value.is_state()) {
      TESSER_ASSIGN_OR_RETURN(const bool written, write_trained(value));
      if (written || value.starts_as_zeros) {
        continue;
      }
    }
    if (!initial) {
      TESSER_ASSIGN_OR_RETURN(initial, graph::open_state(program, program_directory));
    }
    TESSER_RETURN_IF_ERROR(write_from(executor, value, find_in(*initial, value.name), initial->path(), memory));
  }
  return {};
}

}  // namespace

Result<Weights> Weights::open(const Path& path, std::vector<std::string>& notes) {
  std::error_code error;
  Weights weights;
  weights.path_ = path;
  if (std::filesystem::is_directory(path, error)) {
    TESSER_ASSIGN_OR_RETURN(weights.source_, Checkpoint::open(path, notes));
    weights.path_ = std::get<Checkpoint>(weights.source_).path();
    return weights;
  }
  if (!std::filesystem::exists(path, error)) {
    return not_found(
        fmt::format("{}: no such file or directory; expected a checkpoint directory, or a file that tesser export or "
                    "safetensors wrote",
                    path.string()));
  }
  TESSER_ASSIGN_OR_RETURN(weights.source_, SafetensorsFile::open(path));
  return weights;
}

std::optional<TensorView> Weights::find(const StateValue& value) const {
  const auto by_name = [&](const std::string& name) {
    return std::visit([&](const auto& source) { return find_in(source, name); }, source_);
  };
  std::optional<TensorView> found = by_name(value.name);
  for (std::size_t i = 0; !found && i < value.aliases.size(); ++i) {
    found = by_name(value.aliases[i]);
  }
  return found;
}

Result<void> write_initial_state(Executor& executor, const Path& program_directory) {
  return write_inputs(executor, program_directory, [](const graph::Value&) { return false; });
}

Result<void> write_checkpoint_state(Executor& executor, const Path& program_directory, const Checkpoint& checkpoint) {
  std::vector<std::byte> memory;
  return write_inputs(executor, program_directory, [&](const graph::Value& value) -> Result<bool> {
    memory.resize(std::max(memory.size(), static_cast<std::size_t>(value.bytes())));
    const MutableTensorView part{value.dtype, value.shape, memory.data()};
    TESSER_RETURN_IF_ERROR(checkpoint.read_part(value.name, whole_shape(value), place_of(value).begin, part));
    TESSER_RETURN_IF_ERROR(executor.write_state(value.name, {part.dtype, part.shape, part.data}));
    return true;
  });
}

Result<void> write_weights(Executor& executor, const Path& program_directory, const Weights& weights) {
  std::vector<std::byte> memory;
  return write_inputs(executor, program_directory, [&](const graph::Value& value) -> Result<bool> {
    const StateValue state{value.name, value.role, value.dtype, value.shape, value.persistent, value.aliases};
    if (!state.in_state_dict()) {
      return false;
    }
    TESSER_RETURN_IF_ERROR(write_from(executor, value, weights.find(state), weights.path(), memory));
    return true;
  });
}

}  // namespace tesser::runtime
