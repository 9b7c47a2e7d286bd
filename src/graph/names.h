// Names of the program format's enumerations (docs/formats/program.md), and what a name may be.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/program.h"

namespace tesser::graph {

std::string_view kind_name(Kind kind);  // "step"
std::optional<Kind> kind_from_name(std::string_view name);
std::string_view phase_name(Phase phase);  // "backward"
std::optional<Phase> phase_from_name(std::string_view name);
std::string_view role_name(Role role);                            // "optimizer_state"
std::optional<Role> input_role_from_name(std::string_view name);  // roles of inputs only
std::string_view schedule_kind_name(Schedule::Kind kind);         // "one_cycle"
std::optional<Schedule::Kind> schedule_kind_from_name(std::string_view name);

bool is_enumerator_kind(std::string_view kind);  // "dtype", "layout", "device", "memory_format"

// Why this is no name for a value, node, module or source line; nothing when it is one. Names are printed, so they hold
// no control characters; `may_be_empty` is for modules, whose root is "".
std::optional<std::string> name_defect(std::string_view name, bool may_be_empty = false);

}  // namespace tesser::graph
