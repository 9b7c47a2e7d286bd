#include "graph/names.h"

#include <array>

namespace tesser::graph {
namespace {

// Each in the order of its enumeration.
constexpr std::array<std::string_view, 2> kKinds{"step", "forward"};
constexpr std::array<std::string_view, 4> kPhases{"forward", "backward", "clip", "update"};
constexpr std::array<std::string_view, 9> kRoles{
    "parameter", "optimizer_state", "buffer", "batch", "step", "learning_rate", "seed", "constant", "intermediate"};
constexpr std::array<std::string_view, 8> kScheduleKinds{"constant",    "step",      "linear",   "cosine",
                                                         "cosine_wave", "one_cycle", "sequence", "end"};

template <typename Enumeration, std::size_t size>
std::optional<Enumeration> from_name(const std::array<std::string_view, size>& names, std::string_view name) {
  for (std::size_t index = 0; index < size; ++index) {
    if (names[index] == name) {
      return static_cast<Enumeration>(index);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view kind_name(Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }
std::optional<Kind> kind_from_name(std::string_view name) { return from_name<Kind>(kKinds, name); }

std::string_view phase_name(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }
std::optional<Phase> phase_from_name(std::string_view name) { return from_name<Phase>(kPhases, name); }

std::string_view role_name(Role role) { return kRoles[static_cast<std::size_t>(role)]; }
std::optional<Role> input_role_from_name(std::string_view name) {
  const std::optional<Role> role = from_name<Role>(kRoles, name);
  return role == Role::kIntermediate ? std::nullopt : role;
}

std::string_view schedule_kind_name(Schedule::Kind kind) { return kScheduleKinds[static_cast<std::size_t>(kind)]; }
std::optional<Schedule::Kind> schedule_kind_from_name(std::string_view name) {
  return from_name<Schedule::Kind>(kScheduleKinds, name);
}

bool is_enumerator_kind(std::string_view kind) {
  return kind == "dtype" || kind == "layout" || kind == "device" || kind == "memory_format";
}

std::optional<std::string> name_defect(std::string_view name, bool may_be_empty) {
  if (name.empty() && !may_be_empty) {
    return "is empty";
  }
  for (const char character : name) {
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) {
      return "holds a control character";
    }
  }
  return std::nullopt;
}

}  // namespace tesser::graph
