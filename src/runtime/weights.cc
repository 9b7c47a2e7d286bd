#include "runtime/weights.h"

#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "graph/state.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;

// The value's content and the file it is in.
struct Content {
  std::optional<TensorView> view;
  Path file;
};

std::optional<TensorView> find_in(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* entry = file.find(name);
  return entry != nullptr ? std::optional(file.view(*entry)) : std::nullopt;
}
std::optional<TensorView> find_in(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.find(name);
}

// Writes every state value and constant that `choose` finds a place for; a value it returns nothing for comes from
// state.safetensors.
Result<void> write_inputs(Executor& executor, const Path& program_directory,
                          const std::function<std::optional<Content>(const StateValue&)>& choose) {
  std::optional<SafetensorsFile> initial;
  const graph::Program& program = executor.program();
  for (const graph::ValueId id : program.inputs) {
    const graph::Value& value = program.value(id);
    if (!value.is_state() && value.role != graph::Role::kConstant) {
      continue;
    }
    Content content;
    const std::optional<Content> chosen =
        value.is_state() ? choose({value.name, value.role, value.dtype, value.shape, value.persistent, value.aliases})
                         : std::nullopt;
    if (chosen) {
      content = *chosen;
    } else if (value.starts_as_zeros) {
      continue;
    } else {
      if (!initial) {
        TESSER_ASSIGN_OR_RETURN(initial, graph::open_state(program, program_directory));
      }
      content = {find_in(*initial, value.name), initial->path()};
    }
    if (!content.view) {
      return invalid_input(
          fmt::format("{}: has no '{}', which program '{}' needs", content.file.string(), value.name, program.name));
    }
    if (content.view->dtype != value.dtype || content.view->shape != value.shape) {
      return invalid_input(fmt::format("{}: '{}' is {}, program '{}' expects {}", content.file.string(), value.name,
                                       type_text(content.view->dtype, content.view->shape), program.name,
                                       type_text(value.dtype, value.shape)));
    }
    TESSER_RETURN_IF_ERROR(executor.write_state(value.name, *content.view));
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
  return write_inputs(executor, program_directory, [](const StateValue&) { return std::nullopt; });
}

Result<void> write_checkpoint_state(Executor& executor, const Path& program_directory, const Checkpoint& checkpoint) {
  return write_inputs(executor, program_directory, [&](const StateValue& value) {
    return std::optional<Content>({checkpoint.find(value.name), checkpoint.path()});
  });
}

Result<void> write_weights(Executor& executor, const Path& program_directory, const Weights& weights) {
  return write_inputs(executor, program_directory, [&](const StateValue& value) {
    return value.in_state_dict() ? std::optional<Content>({weights.find(value), weights.path()}) : std::nullopt;
  });
}

}  // namespace tesser::runtime
